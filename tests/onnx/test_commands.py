"""thinrnn export and thinrnn quantize, as a user calls them."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

import thinrnn
from thinrnn.lab.cli import main
from thinrnn.lab.recipes.finish import time_models
from thinrnn.lab.recipes.language_model.data import Splitting, Vocabulary
from thinrnn.lab.recipes.language_model.export import export_model, onnx_calls
from thinrnn.lab.recipes.language_model.load import load_model, save_model, score_model
from thinrnn.lab.recipes.language_model.model import LanguageModel
from thinrnn.lab.recipes.language_model.recipe import RECIPE
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.run.progress import Silent

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

WORDS = ("<unk>", "<eos>", *(f"w{i}" for i in range(28)))

TIMED = LanguageModelSettings(bench_threads=1)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command; return its exit code, its output and what it printed on the error stream."""

    def run(*arguments: Any) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return left.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pruned model."""
    folder = tmp_path_factory.mktemp("models") / "small"
    torch.manual_seed(0)
    arguments = {"vocabulary": len(WORDS), "embedding": 8, "hidden": (12, 12)}
    dense = LanguageModel(**arguments)  # type: ignore[arg-type]
    thinrnn.attach_(dense, thinrnn.find_groups(dense, torch.zeros(3, 2, dtype=torch.long)))
    for gate in thinrnn.gates(dense).values():
        gate.log_alpha = 3 * torch.randn(gate.size) + 1
    save_model(thinrnn.compact(dense), folder, arguments, Vocabulary(WORDS, Splitting()), "float32")
    return folder


@pytest.fixture(scope="module")
def streaming(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as a file that takes its state."""
    file = tmp_path_factory.mktemp("streaming") / "model.onnx"
    export_model(model, file, streaming=True)
    return file


def test_export_writes_a_file_that_agrees_with_the_model(
    model: Path, tmp_path: Path, call: Any
) -> None:
    file = tmp_path / "out" / "model.onnx"
    code, printed, _ = call("export", model, "--onnx", file)
    assert code == 0 and "largest difference from PyTorch" in printed
    assert printed.splitlines()[-1].startswith(
        f"wrote {file} and {tmp_path / 'out/vocabulary.json'};"
    )
    assert json.loads((tmp_path / "out/vocabulary.json").read_text())["tokens"] == list(WORDS)
    tokens = torch.randint(0, len(WORDS), (9, 4))
    with torch.no_grad():
        expected = load_model(model).model(tokens)[0]
    found = onnxruntime.InferenceSession(file).run(["output.0"], {"tokens": tokens.numpy()})[0]
    numpy.testing.assert_allclose(found, expected, atol=1e-5)

    text = tmp_path / "valid.txt"
    text.write_text("w1 w2\n")
    code, _, err = call("quantize", file, "--out", tmp_path / "b.onnx", "--valid", text)
    assert code == 2 and "export it with --streaming" in err


def test_export_prints_one_json_object(model: Path, tmp_path: Path, call: Any) -> None:
    file = tmp_path / "model.onnx"
    code, printed, err = call("export", model, "--onnx", file, "--streaming", "--json")
    result = json.loads(printed)
    assert code == 0 and result["difference"] < 1e-4 and len(result["states"]) == 4
    assert result["bytes"] == file.stat().st_size and "exporting" in err
    about = {entry.key: entry.value for entry in onnx.load(file).metadata_props}
    assert about["recipe"] == "language_model" and len(about["vocabulary"]) == 64


def test_file_of_a_published_model_has_its_sizes_and_perplexity(
    model: Path, tmp_path: Path, call: Any
) -> None:
    published = shutil.copytree(model, tmp_path / "models" / "mine")
    figures = {"valid_perplexity": 12.5, "test_perplexity": None, "bytes": 7}
    (tmp_path / "mine.json").write_text(json.dumps({"stored": figures}))
    file = tmp_path / "out" / "model.onnx"
    _, printed, _ = call("export", published, "--onnx", file)
    about = {entry.key: entry.value for entry in onnx.load(file).metadata_props}
    assert about["valid_perplexity"] == "12.5" and "bytes" not in about
    assert "test_perplexity" not in about
    width = load_model(model).model.get_submodule("embedding").embedding_dim
    assert json.loads(about["sizes"])["embedding"] == width
    command = printed.splitlines()[-1].partition("next: thinrnn ")[2]
    assert call(*command.split())[0] == 0
    assert (file.parent / "model.int8.onnx").exists()  # beside the vocabulary


def test_a_text_cannot_judge_what_is_no_language_model(tmp_path: Path, call: Any) -> None:
    file, text = tmp_path / "gru.onnx", tmp_path / "valid.txt"
    thinrnn.export_onnx(torch.nn.GRU(9, 9), file, torch.randn(5, 2, 9))
    text.write_text("w1 w2\n")
    code, _, err = call("quantize", file, "--out", tmp_path / "int8.onnx", "--valid", text)
    assert code == 2 and "is not a language model" in err and "a measure of your own" in err
    code, _, err = call("quantize", file, "--out", tmp_path / "int8.onnx", "--best", 3)
    assert code == 1 and "cannot be computed without" in err and ".whole" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "nowhere", "--onnx", "a.onnx"], "nowhere does not exist"),
        (["export", "."], "Missing option '--out'"),
        (["quantize", "a.onnx", "--out", "b.onnx"], "a.onnx is not a file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, call: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    code, printed, err = call(*arguments)
    assert code == 2 and message in err and err.count("\n") == 1 and not printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["export", "quantize"])
def test_help_has_an_example_and_json(command: str, call: Any) -> None:
    code, printed, _ = call(command, "--help")
    assert code == 0 and f"Example: thinrnn {command}" in printed and "--json" in printed


def test_models_of_a_run_are_called_in_onnx_runtime(model: Path) -> None:
    calls = onnx_calls({"small": model, "control": model}, TIMED, Silent())
    assert list(calls) == ["small"] and calls["small"][1] < 1e-4
    tokens = torch.randint(0, len(WORDS), (7, 3))
    with torch.no_grad():
        expected = load_model(model).model(tokens)[0]
    numpy.testing.assert_allclose(calls["small"][0](tokens)["output.0"], expected, atol=1e-5)
    assert (model / "model.onnx").exists() and load_model(model)


def test_a_run_continues_without_the_extra(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert onnx_calls({"small": model}, TIMED, Silent()) == {}


def test_quantize_measures_before_and_after(
    model: Path, streaming: Path, tmp_path: Path, call: Any
) -> None:
    text = tmp_path / "valid.txt"
    text.write_text("w1 w2 w3 w4\nw5 w6 w7 w8 w9\n" * 10)
    file, out = tmp_path / "model.onnx", tmp_path / "int8.onnx"
    for part in (file, tmp_path / "vocabulary.json"):
        part.write_bytes((streaming.parent / part.name).read_bytes())
    code, printed, _ = call("quantize", file, "--out", out, "--valid", text, "--max-loss", 0.1)
    assert code == 0 and "quality " in printed and "DynamicQuantize" not in printed
    assert printed.splitlines()[-1].startswith(f"wrote {out}; next:")
    code, printed, _ = call("quantize", file, "--out", out, "--valid", text, "--json", "--force")
    result = json.loads(printed)
    assert code == 0 and abs(result["loss"]) < 0.1
    expected = score_model(model, {"valid": text}, progress=Silent())["valid_perplexity"]
    assert result["quality_before"] == pytest.approx(expected, rel=1e-4)

    out.unlink()
    code, _, err = call("quantize", file, "--out", out, "--max-loss", 0.1)
    assert code == 2 and "give --valid FILE" in err
    (tmp_path / "vocabulary.json").write_text('{"level": "word", "tokens": ["<eos>", "<unk>"]}')
    code, _, err = call("quantize", file, "--out", out, "--valid", text)
    assert code == 2 and "is not the vocabulary of" in err and not out.exists()


def test_best_words_instead_of_logits(model: Path, tmp_path: Path, call: Any) -> None:
    whole, best = tmp_path / "whole.onnx", tmp_path / "best.onnx"
    assert call("export", model, "--onnx", whole, "--streaming")[0] == 0
    code, printed, _ = call("export", model, "--onnx", best, "--streaming", "--best", 3)
    assert code == 0 and "best (1, batch, 3)" in printed
    text = tmp_path / "valid.txt"
    text.write_text("w1 w2 w3\n" * 40)
    for file in (best, whole):  # either before or after
        out = tmp_path / f"{file.stem}.int8.onnx"
        more = ["--best", 3, "--valid", text] if file is whole else []
        assert call("quantize", file, "--out", out, *more)[0] == 0
    tokens = numpy.random.default_rng(0).integers(0, len(WORDS), (9, 4))
    session = onnxruntime.InferenceSession(whole)
    state = {v.name: numpy.zeros((1, 4, v.shape[2]), "float32") for v in session.get_inputs()[1:]}
    logits, *last = session.run(None, {"tokens": tokens, **state})
    expected = numpy.sort(logits[-1])[:, ::-1][:, :3]
    for name in ("best", "best.int8", "whole.int8"):
        session = onnxruntime.InferenceSession(tmp_path / f"{name}.onnx")
        words, found, *same = session.run(None, {"tokens": tokens, **state})
        close = 0.03 if "int8" in name else 1e-5
        numpy.testing.assert_allclose(found[0], expected, atol=close)
        numpy.testing.assert_allclose(
            numpy.take_along_axis(logits[-1], words[0], -1), expected, atol=2 * close
        )
        for one, other in zip(last, same, strict=True):
            numpy.testing.assert_allclose(one, other, atol=close)

    code, _, err = call("quantize", best, "--out", tmp_path / "c.onnx", "--valid", text)
    assert code == 2 and "returns only its best words" in err
    code, _, err = call("export", model, "--onnx", tmp_path / "d.onnx", "--best", 31)
    assert code != 0 and "there are 30 words" in err and not (tmp_path / "d.onnx").exists()

    assert "--force" in call("quantize", whole, "--out", whole)[2]
    before = whole.read_bytes()  # what was there stays there
    for command in (("export", model, "--onnx", whole), ("quantize", whole, "--out", whole)):
        force = ["--force"] if command[0] == "quantize" else []
        code, _, err = call(*command, "--best", 31, *force)
        assert code != 0 and "there are 30 words" in err and whole.read_bytes() == before
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_a_run_reports_whether_it_is_timed_in_onnx_runtime(
    model: Path, tmp_path: Path, seconds: float
) -> None:
    class Recorded(Silent):
        printed = ""

        def line(self, text: str) -> None:
            self.printed += text

    shutil.copytree(model, tmp_path / "model")
    written: dict[str, Any] = {}
    run = SimpleNamespace(
        path=tmp_path,
        summaries=lambda: {"small": {"milliseconds": None}},
        write_summary=written.__setitem__,
    )
    settings = SimpleNamespace(bench_seconds=seconds, bench_threads=1, bench_batch=1, bench_steps=2)
    progress = Recorded()
    time_models(RECIPE, settings, run, progress)  # type: ignore[arg-type]
    assert written["small"]["milliseconds"] > 0
    assert ("onnx_milliseconds" in written["small"]) == bool(seconds)
    assert ("not timed in ONNX Runtime, since bench_seconds is 0" in progress.printed) == (
        not seconds
    )
