import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended


def test_one_training_is_compared_with_one_for_each_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks import several_sizes

    out = tmp_path / "out.json"
    small = ["--width=24", "--budgets", "24", "--sizes", "0.5", "0.3"]
    given = [*small, f"--work={tmp_path}", f"--out={out}"]
    monkeypatch.setattr(sys, "argv", ["several_sizes.py", *given])
    several_sizes.main()
    rows = json.loads(out.read_text())["models"]
    assert [(row["steps"], row["size"]) for row in rows] == [(24, "0.5"), (24, "0.3")]
    for row in rows:
        one, own = (row[run]["valid_perplexity"] for run in ("one_run", "own_run"))
        assert row["worse"]["valid_perplexity"] == pytest.approx(one / own - 1, abs=1e-4)

    out.unlink()
    monkeypatch.setattr(
        several_sizes, "prune", None
    )  # all is done: the same command trains nothing
    several_sizes.main()
    assert json.loads(out.read_text())["models"] == rows
