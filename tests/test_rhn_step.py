"""The benchmark of recurrent highway networks runs, and counts what the paper counts."""

import argparse
import json
import runpy
import sys
from pathlib import Path

import pytest

from thinrnn import rhn, rhn_fused

FILE = Path(__file__).parent.parent / "benchmarks/rhn_step.py"


@pytest.mark.parametrize("gated", [False, True])
def test_a_small_one_on_the_cpu(gated, tmp_path, monkeypatch):
    sizes = {"width": 5, "depth": 2, "words": 9, "batch": 2, "steps": 3, "repeats": 1}
    out = tmp_path / "step.json"
    arguments = [str(FILE), *(f"--{name}={size}" for name, size in sizes.items()), f"--out={out}"]
    arguments += ["--gated"] if gated else []
    monkeypatch.setattr(sys, "argv", arguments)
    before = rhn.highway, rhn_fused.highway
    runpy.run_path(str(FILE), run_name="__main__")
    assert (rhn.highway, rhn_fused.highway) == before
    result = json.loads(out.read_text())
    assert set(result["milliseconds"]) == {"reference", "fused"}
    assert result["times_faster_than_the_reference"]["reference"] == 1


def test_the_papers_model_has_the_papers_parameters():
    counts = runpy.run_path(str(FILE))["counts"]
    sizes = argparse.Namespace(words=10_000, width=830, depth=10, batch=20, steps=35)
    assert counts(sizes)["parameters"] == 23_482_400
