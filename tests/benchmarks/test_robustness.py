"""The grid has every level of every factor, and a run of it gives a figure for each model."""

import json
import sys

import pytest

from benchmarks import robustness
from benchmarks.corpora import docs


@pytest.mark.parametrize("grid", [robustness.cuda_grid(), robustness.cpu_grid()])
def test_every_level_of_every_factor_occurs(grid):
    assert {run.cell for run in grid} == set(robustness.CELLS)
    assert {run.width for run in grid} == set(robustness.WIDTHS)
    assert {run.tied for run in grid} == {True, False} and {run.seed for run in grid} == {0, 1}
    assert len({run.corpus for run in grid}) == 5
    assert len({run.name for run in grid}) == len(grid)


def test_docstrings_are_found_at_every_depth():
    code = '"""module"""\nclass A:\n    """class"""\n    def f(self):\n        """method"""\n'
    assert list(docs(code)) == ["module\n", "class\n", "method\n"]


@pytest.mark.extended
def test_a_run_is_measured_once_and_collected(tmp_path, monkeypatch, capsys):
    words = " ".join(f"w{i * i % 37} and w{i % 11}," for i in range(900))
    for part in ("train", "valid", "test"):
        (tmp_path / f"book.{part}.txt").write_text(words)
    run = robustness.Run("book", "rnn", 64, tied=False, seed=0, device="cpu", epochs=2)
    first = robustness.measure_into(run, tmp_path, tmp_path, deadline=1e12)
    assert first.startswith(f"{run.name}: dense ")
    assert "the time is over" in robustness.measure_into(run, tmp_path, tmp_path, deadline=0)
    out = tmp_path / "out" / "grid.json"
    monkeypatch.setattr(sys, "argv", ["robustness.py", "collect", str(tmp_path), f"--out={out}"])
    robustness.main()
    record = json.loads(out.read_text())
    assert "1 runs" in capsys.readouterr().out
    assert set(record["runs"][0]["models"]) == {"dense", "small", "control"}
    machine = record["environment"][record["runs"][0]["machine"]]
    assert machine["processor"] and "above_one" in record
    assert run.name not in record["missing"] and len(record["missing"]) > 30
