"""The benchmark of small changes runs, and each case differs in what it says it does."""

import argparse
import json
import sys

import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

pytestmark = pytest.mark.extended


def test_all_cases_are_timed(monkeypatch, tmp_path):
    from benchmarks import small_cuts

    out = tmp_path / "cuts.json"
    given = ["--sizes", "9", "13", "10", "--words=60", "--rounds=2", f"--out={out}"]
    monkeypatch.setattr(sys, "argv", ["small_cuts.py", *given])
    small_cuts.main()
    record = json.loads(out.read_text())
    shapes = list(small_cuts.SHAPES)
    cases = [f"{what}, {shape}" for what in ("sizes", "bias") for shape in shapes]
    assert list(record["milliseconds"]) == [*cases, "binding, 1 x 1"]
    assert record["settings"] == {"sizes": [9, 13, 10], "words": 60, "rounds": 2}
    assert record["environment"]["processor"] and record["environment"]["onnxruntime"]


def test_a_bias_is_a_row_of_the_weights_or_added(tmp_path):
    from benchmarks import small_cuts

    options = argparse.Namespace(sizes=[9, 13, 10], words=60)
    files = small_cuts.with_biases(options, tmp_path)
    operators = {
        name: [node.op_type for node in onnx.load(path).graph.node] for name, path in files.items()
    }
    assert operators["a row"].count("Pad") == operators["added"].count("Pad") + 1
    assert operators["added"].count("Add") == operators["a row"].count("Add") + 1
