"""Minutes of whole runs: what is trained, what is added up, and what ends too early."""

import json
import sys

import pytest

pytestmark = pytest.mark.extended

SMALL = ["embedding=4", "hidden=4", "phases=dense", "epochs=9", "threads=1", "max_vocabulary=50"]


def run(monkeypatch, out, epochs, changes=()):
    from benchmarks import run_minutes

    given = [part for change in (*SMALL, *changes) for part in ("--set", change)]
    monkeypatch.setattr(
        sys, "argv", ["run_minutes.py", "--runs", f"demo={epochs}", *given, "--out", str(out)]
    )
    run_minutes.main()


def test_epochs_that_are_left_out_count_as_the_last_ones(monkeypatch, tmp_path):
    out = tmp_path / "minutes.json"
    run(monkeypatch, out, 3)
    found = json.loads(out.read_text())["runs"]["demo"]
    assert (found["epochs"], found["trained"]) == (9, 3)
    each, later = found["seconds_of_epochs"], found["seconds_of_a_later_epoch"]
    assert len(each) == 3 and min(each[1:]) <= later <= max(each[1:])
    assert 60 * found["minutes"] == pytest.approx(sum(each) + 6 * later, abs=0.1)


def test_a_run_with_too_few_epochs_is_refused(monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match="demo ended early"):
        run(monkeypatch, tmp_path / "minutes.json", 3, ["epochs=2"])
    assert not (tmp_path / "minutes.json").exists()
