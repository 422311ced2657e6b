"""The table of pruning through norms comes from its file."""

import json
from pathlib import Path

from tools.results import through_norms


def test_each_size_has_a_row_for_each_way(tmp_path: Path) -> None:
    assert through_norms.table(tmp_path) == ""
    cells = [
        {"keep": 0.5, "closed": "at once", "norms_over": "open", "before": 2.5, "trained": 2.25},
        {"keep": 0.5, "closed": "in training", "norms_over": "open", "trained": 2.125},
    ]
    found = {
        "dense": 2.0, "dense_trained": 1.9, "smallest": 0.3, "smallest_through_norms": 0.01,
        "cells": cells, "settings": {"steps": 1200, "more": 300}, "command": "python -m it",
    }  # fmt: skip
    (tmp_path / "sizes").mkdir()
    (tmp_path / through_norms.FILE).write_text(json.dumps(found))
    lines = through_norms.table(tmp_path).splitlines()
    assert lines[2].split("|")[1:5] == [" dense ", " 100 % ", " 2.000 ", " 1.900 "]
    assert "| 50% | 2.500 | 2.250 |" in lines[3]
    assert "Target" in lines[4] and "|  | 2.125 |" in lines[4]
    assert "less than 30.0% of its parameters, with it 1.0%" in lines[-1]
