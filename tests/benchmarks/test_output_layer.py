"""The benchmark of the output layer runs, and its float32 ways agree."""

import json
import sys

import numpy
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.extended


def test_all_ways_are_timed_and_those_in_float32_agree(monkeypatch, tmp_path):
    from benchmarks import output_layer

    out = tmp_path / "layer.json"
    arguments = ["--inputs", "32", "--words", "48", "--rounds", "2", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["output_layer.py", *arguments])
    output_layer.main()
    times = json.loads(out.read_text())["milliseconds"]
    models = output_layer.ways(32, 48)
    assert all(set(times[shape]) == set(models) for shape in ("10 x 30", "1 x 1"))
    x = numpy.random.default_rng(0).normal(size=(3, 2, 32)).astype("float32")
    first, *others = (
        output_layer.make_call(models[name], x)()[0]
        for name in ("product, then sum", "bias as a row of the weights", "Gemm")
    )
    for other in others:
        numpy.testing.assert_allclose(other, first, atol=1e-5)
