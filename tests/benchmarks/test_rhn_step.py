"""The benchmark of recurrent highway networks runs, and counts what the paper counts."""

import argparse
import json
import sys
from pathlib import Path

import pytest

from benchmarks import rhn_step, rhn_way

pytestmark = pytest.mark.extended

SIZES = {"width": 5, "depth": 2, "words": 9, "batch": 2, "steps": 3}


def run(monkeypatch, out: Path, *more: str) -> tuple[int, dict]:
    """Return exit status and what was written."""
    sizes = [f"--{name}={size}" for name, size in SIZES.items()]
    turns = ["--rounds=2", "--slow-repeats=1", f"--out={out}"]
    monkeypatch.setattr(sys, "argv", ["rhn_step", *sizes, *turns, *more])
    with pytest.raises(SystemExit) as ended:
        rhn_step.main()
    return ended.value.code, json.loads(out.read_text())


@pytest.mark.parametrize("option", [None, "--gated", "--as-trained"])
def test_a_small_one_on_the_cpu(option, tmp_path, monkeypatch):
    code, result = run(monkeypatch, tmp_path / "step.json", *([option] if option else []))
    assert code == 0 and not result["failed"]
    assert "--width=5 " in result["command"] and (option or "") in result["command"]
    assert [found["steps"] for found in result["milliseconds"].values()] == [2, 2]
    assert result["times_faster_than_the_reference"]["reference"] == 1
    for losses in (result["first_loss"], result["last_loss"]):  # after the same number of steps
        assert losses["fused"] == pytest.approx(losses["reference"], rel=1e-5)
    assert result["last_loss"] != result["first_loss"]


def test_a_way_that_breaks_costs_no_other_its_result(tmp_path, monkeypatch, capsys):
    code, result = run(monkeypatch, tmp_path / "step.json", "--ways", "nonsense", "fused")
    assert code == 1
    assert set(result["milliseconds"]) == {"fused"}
    assert "nonsense" in result["failed"] and "Traceback" in result["failed"]["nonsense"]
    assert "nonsense: ended, exit 1" in capsys.readouterr().out


def test_sizes_of_a_way_are_read_from_its_name():
    assert rhn_way.sizes("rows=32/16,neurons=8") == {"rows": (32, 16), "neurons": 8}
    assert rhn_way.sizes("") == {}


def test_the_papers_model_has_the_papers_parameters():
    sizes = argparse.Namespace(words=10_000, width=830, depth=10, batch=20, steps=35)
    assert rhn_step.counts(sizes)["parameters"] == 23_482_400
