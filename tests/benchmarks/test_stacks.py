import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended


def test_stacks_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import stacks

    given = ["--sizes", "3,4", "--rounds", "1", "--out", str(tmp_path / "out.json")]
    monkeypatch.setattr(sys, "argv", ["stacks.py", *given])
    stacks.main()
    rows = json.loads((tmp_path / "out.json").read_text())["times"]
    assert len(rows) == len(stacks.KINDS) * len(stacks.SHAPES)
    assert all(row["stack"] > 0 for row in rows)
