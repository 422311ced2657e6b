"""Rare words with shorter vectors: the same as a plain tied model whose table is [E; R P^T]."""

import json

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import thinrnn
from thinrnn.lab import driver
from thinrnn.lab.recipes.language_model.data import Splitting, Vocabulary
from thinrnn.lab.recipes.language_model.load import load_model, save_model
from thinrnn.lab.recipes.language_model.model import Dropouts, LanguageModel, find_plan
from thinrnn.lab.recipes.language_model.recipe import RECIPE
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.language_model.untrained import build_dense, sizes_of
from thinrnn.lab.recipes.phase import Phase
from thinrnn.lab.run import InputError
from thinrnn.lab.run.progress import Silent

WORDS = 40


def rare_model(seed=0, *, rare=30, rare_size=5, embedding=8, hidden=(12, 8), **options):
    torch.manual_seed(seed)
    sizes = {"rare": rare, "rare_size": rare_size, "embedding": embedding, "hidden": hidden}
    return LanguageModel(WORDS, tied=True, init_range=0.5, **sizes, **options)


def plain_model(model):
    """The tied model with one long vector per word that a model with rare words stands for."""
    table = torch.cat([model.embedding.weight, model.rare.weight @ model.widen.weight.t()])
    hidden = tuple(layer.hidden_size for layer in model.rnn)
    options = {"embedding": table.shape[1], "hidden": hidden, "locked": model.locked}
    plain = LanguageModel(WORDS, tied=True, **options).to(table.dtype)
    plain.rnn.load_state_dict(model.rnn.state_dict())
    plain.embedding.weight.data = table.detach()
    plain.decoder.bias.data = torch.cat([model.decoder.bias, model.rare_decoder.bias]).detach()
    return plain


@settings(max_examples=15, deadline=None)
@given(st.integers(1, WORDS - 1), st.integers(1, 9), st.integers(0, 1000))
def test_logits_and_vectors_are_those_of_one_long_table(rare, rare_size, seed):
    model = rare_model(seed, rare=rare, rare_size=rare_size).double().eval()
    plain = plain_model(model).eval()
    tokens = torch.randint(WORDS, (6, 3))
    torch.testing.assert_close(model.vectors(tokens), plain.embedding(tokens))
    torch.testing.assert_close(model(tokens)[0], plain(tokens)[0])


def test_gradients_are_those_of_one_long_table():
    model = rare_model().double()
    plain = plain_model(model)
    tokens, targets = torch.randint(WORDS, (2, 6, 3))
    for one in (model, plain):
        logits = one(tokens)[0].flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, targets.flatten()).backward()
    whole = plain.embedding.weight.grad  # of T = [E; R P^T]
    frequent, rare = whole[: model.frequent], whole[model.frequent :]
    torch.testing.assert_close(model.embedding.weight.grad, frequent)
    torch.testing.assert_close(model.rare.weight.grad, rare @ model.widen.weight)
    torch.testing.assert_close(model.widen.weight.grad, rare.t() @ model.rare.weight)


def test_vectors_and_logits_of_rare_words_begin_as_large_as_the_others():
    torch.manual_seed(0)
    sizes = {"embedding": 64, "hidden": (64, 64), "rare": 1000, "rare_size": 16}
    model = LanguageModel(2000, tied=True, init_range=0.1, **sizes)
    vectors = model.vectors(torch.arange(2000)[:, None])
    logits = model.logits(torch.randn(50, 64))
    for values in (vectors.flatten(1), logits.t()):
        ratio = values[1000:].std() / values[:1000].std()
        assert 0.8 < ratio < 1.25


def test_words_of_both_tables_are_dropped_in_all_places():
    model = rare_model(dropouts=Dropouts(word=0.5)).train()
    every = torch.arange(WORDS).repeat(2)[:, None]
    mask = model.word_mask(every, model.vectors(every)).flatten()
    assert torch.equal(mask[:WORDS], mask[WORDS:])
    for words in (mask[: model.frequent], mask[model.frequent : WORDS]):
        assert set(words.tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("options", [{}, {"hidden": (8, 8)}, {"locked": True}, {"cell": "rhn"}])
def test_both_sizes_are_gated_and_cut_without_a_difference(options):
    model = rare_model(**{"depth": 2, **options}).double().eval()
    plan = find_plan(model)
    groups = {part: group for group in plan for part in group.name.split("+")}
    assert groups["rare"].size == 5 and groups["embedding"].size == 8
    assert groups["embedding"] is not groups["rare"]
    thinrnn.attach_(model, plan)
    for number, gate in enumerate(thinrnn.gates(model).values()):
        generator = torch.Generator().manual_seed(number)
        gate.log_alpha = 2 * torch.randn(gate.size, generator=generator)
        gate.log_alpha = torch.where(torch.arange(gate.size) == 1, -9.0, gate.log_alpha)
    small = thinrnn.compact(model)
    tokens = torch.randint(WORDS, (7, 3))
    assert thinrnn.verify(model, small, tokens) < 1e-10
    d, r = small.embedding.embedding_dim, small.rare.embedding_dim
    assert d < 8 and r < 5 and tuple(small.widen.weight.shape) == (d, r)
    output = small.frequent * d + d * r + 30 * r
    by_module = {module.name: module.macs for module in thinrnn.count(small).modules}
    assert sum(by_module[name] for name in ("decoder", "widen", "rare_decoder")) == output
    layers = sum(p.numel() for p in small.rnn.parameters() if p.dim() > 1)
    assert thinrnn.count(small).weights == thinrnn.count(small).macs == layers + output


def test_group_lasso_and_magnitude_see_the_rare_words():
    model = rare_model()
    plan = find_plan(model)
    with torch.no_grad():
        model.rare.weight[:, 2] = model.widen.weight[:, 2] = 0
    lasso = thinrnn.GroupLasso(model, plan, weight=1.0)
    assert lasso.alive()["rare+widen.t"].tolist() == [True, True, False, True, True]
    lasso().backward()
    assert model.rare.weight.grad[:, 0].any() and model.widen.weight.grad[:, 0].any()
    thinrnn.magnitude_(model, plan, params=0.4)
    assert not thinrnn.gates(model)["rare+widen.t"].keep[2]
    assert thinrnn.count(model).params <= 0.4 * thinrnn.count(rare_model()).params


def run(settings, folder):
    return driver.start(RECIPE, settings, folder, preset=None, progress=Silent())


RARE = {"tied": True, "embedding": 12, "hidden": (14, 12), "rare": 20, "rare_size": 6}


@pytest.mark.parametrize(
    "changes",
    [
        {"word_dropout": 0.2, "locked": True, "target_params": 0.12},
        {"hidden": (12, 12), "shrink": False, "target_params": None, "target_macs": 0.2},
        {"level": "char", "rare": 10, "rare_size": 10, "cell": "gru", "target_params": 0.15},
    ],
)
def test_a_run_prunes_both_sizes_and_its_control_has_them(tiny, tmp_path, changes):
    finished = run(tiny(**{**RARE, **changes}), tmp_path / "run")
    small, control = finished.summary("small"), finished.summary("control")
    assert small["difference"] < 1e-4
    for name in ("params", "weights", "macs", "neurons"):
        assert small[name] == control[name]
    sizes = {part: n for name, n in small["neurons"].items() for part in name.split("+")}
    assert 0 < sizes["rare"] < {**RARE, **changes}["rare_size"]
    for folder in ("model", "control"):
        model = load_model(tmp_path / "run" / folder).model
        assert model.rare.embedding_dim == sizes["rare"]
        assert model.embedding.embedding_dim == sizes["embedding"]


def test_a_control_alone_has_the_sizes_of_the_settings(tiny, tmp_path):
    finished = run(tiny(**RARE, phases=("control",)), tmp_path / "run")
    model = load_model(tmp_path / "run/control").model
    assert tuple(model.rare.weight.shape) == (20, 6)
    assert finished.summary("control")["neurons"]["rare+widen.t"] == 6


def test_a_resumed_run_ends_in_the_same_weights(tiny, tmp_path, monkeypatch):

    chosen = tiny(**RARE, phases=("gated",), target_params=0.6, checkpoint_steps=2)
    run(chosen, tmp_path / "whole")
    take_step = Phase.take_step

    def stop_late(self):
        if self.step == 23:
            raise KeyboardInterrupt
        take_step(self)

    monkeypatch.setattr(Phase, "take_step", stop_late)
    with pytest.raises(KeyboardInterrupt):
        run(chosen, tmp_path / "cut")
    monkeypatch.undo()
    driver.resume(tmp_path / "cut", [], progress=Silent())
    weights = [tmp_path / name / "model/model.safetensors" for name in ("whole", "cut")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_what_makes_no_sense_is_refused(tiny, tmp_path):
    with pytest.raises(InputError, match="set tied=true"):
        LanguageModelSettings(rare=10)
    with pytest.raises(InputError, match=r"rare=100000 .* vocabulary of \d+ words"):
        run(tiny(**{**RARE, "rare": 100_000}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def folder(tmp_path):
    """A folder with a model that was pruned in both sizes."""
    arguments = {"vocabulary": WORDS, "embedding": 24, "hidden": (20, 24), "tied": True}
    arguments |= {"rare": 30, "rare_size": 16}
    model = rare_model(embedding=24, hidden=(20, 24), rare_size=16)
    thinrnn.attach_(model, find_plan(model))
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.where(torch.arange(gate.size) % 5 == 0, -9.0, 9.0)
    words = Vocabulary(tuple(["<eos>", "<unk>", *(f"w{i}" for i in range(38))]), Splitting())
    save_model(thinrnn.compact(model), tmp_path / "model", arguments, words, "float32")
    return tmp_path / "model"


def test_folders_without_these_settings_hold_models_without_rare_words(tmp_path):
    torch.manual_seed(0)
    arguments = {"vocabulary": 5, "embedding": 4, "hidden": (3,)}
    model = LanguageModel(**arguments)
    words = Vocabulary(("<eos>", "<unk>", "a", "b", "c"), Splitting())
    save_model(model, tmp_path, arguments, words)
    assert "rare" not in json.loads((tmp_path / "recipe.json").read_text())["model"]
    tokens = torch.arange(5)[:, None]
    torch.testing.assert_close(load_model(tmp_path).model(tokens)[0], model.eval()(tokens)[0])


def test_onnx_files_give_the_same_in_all_their_kinds(folder, tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from thinrnn import quantize_onnx, top_k_onnx
    from thinrnn.lab.recipes.language_model.export import export_model
    from thinrnn.onnx.runtime import OnnxFile

    model = load_model(folder).model
    tokens = torch.arange(WORDS).view(8, 5)
    with torch.no_grad():
        wanted = model(tokens)[0].numpy()
    paths = {
        streaming: export_model(folder, tmp_path / f"{streaming}.onnx", streaming=streaming).path
        for streaming in (False, True)
    }
    operators = [node.op_type for node in onnx.load(paths[True]).graph.node]
    assert operators.count("Gather") == 1 and "Where" not in operators
    whole = OnnxFile(paths[False])({"tokens": tokens.numpy()})
    assert numpy.abs(next(iter(whole.values())) - wanted).max() < 1e-5

    stream = OnnxFile(paths[True])
    state = stream.first_states(5)
    for step, words in enumerate(tokens):
        found = stream({"tokens": words[None].numpy(), **state})
        assert numpy.abs(found[next(iter(stream.outputs))][0] - wanted[step]).max() < 1e-5
        state = {name: found[f"{name}.next"] for name in state}

    quantized = quantize_onnx(paths[True], tmp_path / "int8.onnx")
    computed = [w.shape for w in quantized.weights if w.now == "int8"]
    tables = [tuple(model.embedding.weight.shape), tuple(model.rare.weight.shape)]
    assert all(table in computed for table in tables)
    assert sum(w.operator == "LSTM" and w.now == "int8" for w in quantized.weights) == 4
    for kind, path, close in (("float32", paths[True], 1e-5), ("int8", quantized.path, 0.1)):
        file = OnnxFile(path)
        given = {"tokens": tokens.numpy(), **file.first_states(5)}
        logits = file(given)[next(iter(file.outputs))]
        assert numpy.abs(logits - wanted).max() < close * numpy.abs(wanted).max()
        best = OnnxFile(top_k_onnx(path, tmp_path / f"{kind}.best.onnx", k=3))(given)
        largest = numpy.sort(logits[-1], -1)[:, ::-1][:, :3]
        assert numpy.abs(best["best.logits"][0] - largest).max() < close * numpy.abs(wanted).max()


def test_models_are_timed_against_a_dense_one_with_or_without_rare_words(folder, tmp_path):
    same = load_model(build_dense(folder, tmp_path / "same", None)).model
    assert sizes_of(same) == "24-20-24, rare 16"
    other = load_model(build_dense(folder, tmp_path / "other", "30-30-30")).model
    assert sizes_of(other) == "30-30-30" and other.embedding.num_embeddings == WORDS
