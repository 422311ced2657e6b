"""The ISS baseline in the recipe: neurons lose all their weights, go, and nothing else changes."""

import itertools
import json
import random

import pytest
import torch

import thinrnn
from thinrnn._penalties.group_lasso import weight_slices
from thinrnn.lab import driver
from thinrnn.lab.recipes.language_model.recipe import RECIPE, build_model
from thinrnn.lab.recipes.phase import Phase
from thinrnn.lab.run.metrics import read_metrics
from thinrnn.lab.run.progress import Silent


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    """A text that takes some neurons to learn: counting by three."""
    folder = tmp_path_factory.mktemp("counting")
    for name, lines in (("train", 120), ("valid", 20), ("test", 20)):
        dice = random.Random(name)
        starts = (dice.randrange(10) for _ in range(lines))
        rows = (" ".join(f"w{(start + 3 * i) % 10}" for i in range(8)) for start in starts)
        (folder / f"{name}.txt").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture
def iss(tiny, counting):
    """Settings under which about half of the neurons go."""

    def make(**changes):
        values = {
            **{part: str(counting / f"{part}.txt") for part in ("train", "valid", "test")},
            "hidden": (14,),
            "target_params": None,
            "lasso": 0.04,
            "optimizer": "sgd",
            "lr": 2.0,
            "clip": 2.0,
            "schedule": "decay",
            "lr_decay": 0.3,
            "decay_from": 10,
            "epochs": 16,
            "dropout": 0.0,
            "init_range": 0.5,
            "rnn_init": 0.4,
            "phases": ("gated",),
            "checkpoint_steps": 0,
        }
        return tiny(**{**values, **changes})

    return make


@pytest.fixture
def build(begin):
    return lambda settings: begin(settings, "gated")


def test_neurons_disappear_during_training(iss, tmp_path):
    finished = driver.start(RECIPE, iss(), tmp_path / "run", preset=None, progress=Silent())
    small = finished.summary("small")
    assert small["difference"] < 1e-5
    neurons = small["neurons"]
    assert neurons["embedding"] == 10  # not pruned, as in the paper
    assert 1 < neurons["rnn.l0"] < 14
    epochs = [e for e in read_metrics(tmp_path / "run/metrics.jsonl") if e["event"] == "epoch"]
    sizes = [sum(epoch["kept"].values()) for epoch in epochs]
    assert all(a >= b for a, b in itertools.pairwise(sizes)) and sizes[-1] < sizes[0] == 24
    assert epochs[-1]["kept"] == neurons and epochs[-1]["params"] == small["params"]
    assert epochs[-1]["penalty"] < epochs[0]["penalty"]
    # the last weights are the ones that are kept, and what was removed had changed nothing
    assert small["valid_perplexity"] == pytest.approx(epochs[-1]["valid_perplexity"], rel=1e-4)


def test_a_neuron_goes_when_its_last_weight_is_gone_and_the_outputs_stay(iss, build):
    training = build(iss(hidden=(12, 12)))
    model, lasso = training.model.eval(), training.pruning
    tokens = torch.arange(24).view(8, 3) % 10
    group = lasso.gated.plan["rnn.l0"]
    tensors = dict(model.named_parameters())
    with torch.no_grad():
        for part in group.slices:
            tensor = tensors[part.parameter]
            positions, neurons = part.index()
            if tensor.dim() > 1:  # the bias still changes a state that nothing reads
                tensor.index_fill_(part.dim, positions[neurons == 4], 0.0)
                tensor.index_fill_(part.dim, positions[neurons == 7][1:], 0.0)
            else:
                tensor.add_(0.1)
    before, _ = model(tokens)
    lasso.close_()
    assert (~thinrnn.gates(model)["rnn.l0"].keep).nonzero().flatten().tolist() == [4]
    torch.testing.assert_close(model(tokens)[0], before, rtol=0, atol=1e-6)
    training.shrink()
    assert thinrnn.gates(model)["rnn.l0"].size == 11
    torch.testing.assert_close(model(tokens)[0], before, rtol=0, atol=1e-6)
    small = thinrnn.compact(model)
    torch.testing.assert_close(small(tokens)[0], before, rtol=0, atol=1e-6)
    assert len(lasso.lasso.alive()["rnn.l0"]) == 11


def test_tiny_weights_are_zero_after_each_step_and_open_gates_cost_nothing(iss, build):
    training = build(iss())
    training.take_step()
    weights = torch.cat([p.flatten() for n, p in training.model.named_parameters() if "rnn.w" in n])
    assert not ((weights != 0) & (weights.abs() < training.settings.lasso_zero)).any()
    assert training.pruning.gated.is_folded
    assert all(gate.log_alpha.grad is None for gate in thinrnn.gates(training.model).values())


def test_the_threshold_at_the_end_closes_neurons_whose_weights_are_all_below_it(iss, build):
    training = build(iss(lasso_zero_at_end=0.02))
    with torch.no_grad():
        norms = training.pruning.lasso.alive()["rnn.l0"]
        for tensor, part in weight_slices(training.model, training.pruning.gated.plan["rnn.l0"]):
            positions, neurons = part.index()
            tensor.index_fill_(part.dim, positions[neurons == 3], 0.01)
    assert norms.all()
    training.pruning.close_()
    assert thinrnn.gates(training.model)["rnn.l0"].keep.all()
    training.pruning.finish_()
    assert (~thinrnn.gates(training.model)["rnn.l0"].keep).nonzero().flatten().tolist() == [3]


def test_the_embedding_is_penalised_only_where_it_is_tied_to_hidden_neurons(iss, build):
    assert set(build(iss(hidden=(12, 12))).pruning.lasso.alive()) == {"rnn.l0", "rnn.l1"}
    chosen = build(iss(hidden=(12, 12), lasso_embedding=True))
    assert set(chosen.pruning.lasso.alive()) == {"rnn.l0", "rnn.l1", "embedding"}
    tied = build(iss(hidden=(12, 12), tied=True, embedding=12))
    assert set(tied.pruning.lasso.alive()) == {"rnn.l0", "embedding+rnn.l1"}


def test_a_run_that_was_stopped_ends_in_the_same_weights(iss, tmp_path, monkeypatch):

    settings = iss(checkpoint_steps=137)  # the neurons go at step 135
    driver.start(RECIPE, settings, tmp_path / "whole", preset=None, progress=Silent())
    real, left = Phase.take_step, [9 * 15 + 4]

    def take_step(self):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        real(self)

    monkeypatch.setattr(Phase, "take_step", take_step)
    with pytest.raises(KeyboardInterrupt):
        driver.start(RECIPE, settings, tmp_path / "run", preset=None, progress=Silent())
    monkeypatch.undo()
    driver.resume(tmp_path / "run", [], progress=Silent())
    files = [tmp_path / name / "model/model.safetensors" for name in ("whole", "run")]
    assert files[0].read_bytes() == files[1].read_bytes()
    neurons = json.loads((tmp_path / "run/small.json").read_text())["neurons"]
    assert neurons["rnn.l0"] < 14


def test_recurrent_layers_start_in_the_given_range(tiny):
    settings = tiny(rnn_init=0.04, init_range=0.2)
    model = build_model(settings, 30)
    for name, parameter in model.named_parameters():
        limit = 0.04 if name.startswith("rnn.weight") else 0.2
        limit = 0.0 if "bias" in name else limit
        assert limit * 0.9 <= parameter.abs().max() <= limit


@pytest.mark.gpu
def test_graphs_give_the_losses_of_plain_steps(iss, begin):
    losses, sizes = [], []
    for graphs in (False, True):
        settings = iss(device="cuda", cuda_graphs=graphs, precision="float32")
        training = begin(settings, "gated", "cuda")
        for _ in range(settings.epochs):
            while not training.epoch_is_over:
                training.take_step()
            losses.append(training.means.of_epoch())
            training.pruning.close_()
            training.shrink()
            training.begin_epoch()
        sizes.append([gate.size for gate in thinrnn.gates(training.model).values()])
    half = len(losses) // 2
    for plain, graphed in zip(losses[:half], losses[half:], strict=True):
        assert graphed == pytest.approx(plain, rel=1e-2)
    assert sizes[0] == sizes[1] and sizes[0][1] < 14
