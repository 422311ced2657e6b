"""thinrnn bench, as a user calls it."""

import json
import shutil

import pytest

from thinrnn.lab.bench.compare import compare_folders, headline
from thinrnn.lab.bench.request import Request
from thinrnn.lab.bench.table import tables
from thinrnn.lab.run.progress import Silent
from thinrnn.timing import TOO_NOISY


@pytest.fixture(autouse=True)
def small_and_short(monkeypatch):
    """Little is flushed for a cold call, and answers time out soon."""
    monkeypatch.setattr("thinrnn.lab.bench.compare.largest_cache", lambda: 1 << 20)
    monkeypatch.setattr("thinrnn.lab.bench.worker.PATIENCE", 120.0)


@pytest.mark.extended
def test_models_are_compared_across_runtimes_with_an_untrained_dense_one(small, tmp_path, call):
    pytest.importorskip("onnxscript")
    out, text = tmp_path / "bench.json", tmp_path / "valid.txt"
    text.write_text("w1 w2 w3\n" * 40)
    code, _, wrong = call(
        *("bench", small, "--runtimes", "eager,onnx,int8,best", "--shape", "2x3", "--shape", "1x1"),
        *("--seconds", 0, "--valid", text, "--memory", "--out", out),
    )
    assert code == 0, wrong
    result = json.loads(out.read_text())
    assert [*result["models"]] == ["dense", "thin"] and result["untrained"] == ["dense"]
    assert result["models"]["dense"]["sizes"] == "8-12-12"
    before, after = (one["perplexity"] for one in result["quality"])
    assert [one["runtime"] for one in result["quality"]] == ["onnx", "int8"]
    assert before != after and abs(after / before - 1) < 0.01
    assert result["models"]["dense"]["weights"] > result["models"]["thin"]["weights"]
    settings = {(c["runtime"], c["batch"], c["steps"], c["caches"]) for c in result["cases"]}
    shapes = {(2, 3, "warm"), (1, 1, "warm"), (1, 1, "cold")}
    assert settings == {(r, *shape) for r in ("eager", "onnx", "int8", "best") for shape in shapes}
    for case in result["cases"]:
        dense, thin = case["models"]["dense"], case["models"]["thin"]
        assert dense["speedup"] == 1 and thin["lower"] <= thin["median"] <= thin["upper"]
        assert thin["speedup"] == pytest.approx(dense["median"] / thin["median"])
        in_eager = next(
            other
            for other in result["cases"]
            if other["runtime"] == "eager"
            and all(other[key] == case[key] for key in ("batch", "steps", "caches"))
        )
        if case["runtime"] == "best":
            assert "speedup_over_eager" not in thin
        elif case is not in_eager:
            wanted = in_eager["models"]["dense"]["median"] / thin["median"]
            assert thin["speedup_over_eager"] == pytest.approx(wanted)
    sizes = {(one["runtime"], one["model"]): one for one in result["memory"]}
    assert len(sizes) == 8
    assert sizes["int8", "dense"]["bytes"] < sizes["onnx", "dense"]["bytes"]
    assert all(one["peak"] > 1e6 for one in sizes.values() if one["peak"] is not None)
    assert result["skipped"] == [] and result["command"].startswith("thinrnn")
    assert str(tmp_path) not in json.dumps({**result, "command": ""})
    fair = next(c for c in result["cases"] if (c["runtime"], c["batch"]) == ("onnx", 2))
    assert result["headline"]["runtime"] == "onnx"
    assert result["headline"]["speedup"] == fair["models"]["thin"]["speedup"]


@pytest.mark.extended
def test_the_dense_model_may_have_a_shape_of_its_own(small, call):
    code, printed, _ = call(
        *("bench", small, "--dense", "16-20-24", "--shape", "1x2", "--seconds", 0, "--json")
    )
    models = json.loads(printed)["models"]
    recurrent = 4 * (20 * (16 + 20) + 24 * (20 + 24))
    assert code == 0 and models["dense"]["weights"] == 30 * 16 + recurrent + 30 * 24


@pytest.mark.extended
def test_a_runtime_that_does_not_take_a_model_is_skipped_with_the_reason(
    small, tmp_path, monkeypatch
):
    pytest.importorskip("onnxscript")
    copy = shutil.copytree(small, tmp_path / "copy")

    def lose_the_weights(self, candidates):
        (copy / "model.safetensors").unlink()
        return []

    monkeypatch.setattr("thinrnn.lab.bench.compare._Session.perplexities", lose_the_weights)
    request = Request(["eager", "onnx"], [1], [(1, 2)], seconds=0)
    found = compare_folders({"thin": copy}, "language_model", request, Silent())
    assert [case["runtime"] for case in found["cases"]] == ["onnx"]
    assert [one["runtime"] for one in found["skipped"]] == ["eager"]
    assert "model.safetensors" in found["skipped"][0]["reason"]


def test_without_the_extra_torch_alone_is_timed(small, monkeypatch, call):
    monkeypatch.setattr("thinrnn._extras.missing", lambda *modules: list(modules))
    code, out, _ = call("bench", small, "--shape", "1x2", "--seconds", 0, "--json")
    result = json.loads(out)
    assert code == 0 and {case["runtime"] for case in result["cases"]} == {"eager"}
    assert "'.[onnx]'" in result["skipped"][0]["reason"]
    assert result["headline"]["runtime"] == "eager"


def test_the_headline_compares_within_one_runtime():
    def case(runtime, small):
        models = {"dense": {"speedup": 1.0}, "a/small": {"speedup": small}}
        return {"runtime": runtime, "threads": 1, "batch": 10, "steps": 30, "caches": "warm"} | {
            "models": models
        }

    assert headline([case("eager", 9.0), case("onnx", 4.0), case("int8", 3.0)])["speedup"] == 4.0
    assert headline([case("eager", 9.0), case("compiled", 5.0)])["runtime"] == "compiled"
    assert headline([]) is None


@pytest.mark.parametrize("is_noisy", [False, True])
def test_a_comparison_of_noisy_times_is_called_one(is_noisy):
    times = {"upper": 6.0, "lower": 5.0, "median": 5.0}
    case = {"runtime": "onnx", "threads": 1, "batch": 10, "steps": 30, "caches": "warm"}
    case["models"] = {
        "dense": {**times, "speedup": 1.0, "noisy": False},
        "small": {**times, "speedup": 4.0, "noisy": is_noisy},
    }
    head = headline([case])
    assert head["noisy"] == is_noisy
    found = {"headline": head, "untrained": [], "cases": [case], "quality": [], "skipped": []}
    lines = tables({**found, "memory": []}).splitlines()
    row = next(line for line in lines if line.startswith("onnx") and "small" in line)
    assert (TOO_NOISY in lines[0], row.endswith("noisy")) == (is_noisy, is_noisy)


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (["--runtimes", "eager,fast"], "no runtime 'fast'"),
        (["--shape", "10"], "--shape is '10'"),
        (["--threads", "1,none"], "--threads is '1,none'"),
        (["--dense", "1500"], "'1500' is not a shape"),
    ],
)
def test_what_is_typed_wrong_is_named(small, call, options, printed):
    code, _, wrong = call("bench", small, *options)
    assert code == 2 and printed in wrong
