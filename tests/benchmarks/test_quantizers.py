"""The two quantizers differ in what the benchmark says."""

import json
import sys

import pytest

for package in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(package)

pytestmark = pytest.mark.extended


def test_conclusion_holds(monkeypatch, tmp_path):
    from benchmarks import quantizers

    out = tmp_path / "quantizers.json"
    given = ["--words=100", "--size=16", f"--out={out}"]
    monkeypatch.setattr(sys, "argv", ["quantizers.py", *given])
    quantizers.main()
    found = json.loads(out.read_text())["models"]
    for kind in ("GRU", "RNN", "RHN"):
        ours, runtime = found[kind]["ours"], found[kind]["runtime"]
        assert runtime["weights_in_8_bits"] < ours["weights_in_8_bits"] - 0.05
    assert found["tied"]["runtime"]["bytes"] > 1.2 * found["tied"]["ours"]["bytes"]
    assert "cannot run" in found["last step, tied"]["runtime"]["error"]
    for one in found.values():
        assert one["ours"]["largest_difference"] < 0.05
