"""The benchmark of models with rare words runs, and its ways differ in what they say they do."""

import argparse
import json
import sys

import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

pytestmark = pytest.mark.extended


def test_all_ways_are_timed_and_one_goes_by_steps(monkeypatch, tmp_path):
    from benchmarks import rare_words

    out = tmp_path / "times.json"
    sizes = {"embedding": 24, "hidden": 20, "words": 300, "rare": 200, "rare_size": 10}
    given = [f"--{key.replace('_', '-')}={value}" for key, value in sizes.items()]
    monkeypatch.setattr(sys, "argv", ["rare_words.py", *given, "--rounds=2", f"--out={out}"])
    rare_words.main()
    times = json.loads(out.read_text())["milliseconds"]
    assert set(times) == set(rare_words.SHAPES)
    files = rare_words.write_ways(argparse.Namespace(**sizes), tmp_path)
    assert all(set(found) == set(files) for found in times.values())
    operators = {
        name: {node.op_type for node in onnx.load(path).graph.node} for name, path in files.items()
    }
    assert [name for name, found in operators.items() if "Scan" in found] == ["by step"]
