"""The tables of public models and of other pruning tools."""

import json
from pathlib import Path

from tools.results import zoo


def test_models_that_work_and_models_that_cannot_be_built(tmp_path: Path) -> None:
    assert zoo.table(tmp_path) == zoo.peers(tmp_path) == ""
    good = {
        "model": "A", "package": "a", "version": "1.0", "covered": 1, "recurrent": 2, "works": True,
        "can_go": 0.93, "error": 2e-17, "saved": True, "seconds": 3.2,
    }  # fmt: skip
    bad = {"model": "B", "package": "b", "works": False, "why": "ImportError: no module b"}
    loop = good | {
        "model": "C",
        "onnx": "ExportError: a loop: use nn.GRU. (torch: a size is fixed)",
    }
    models = [good, bad, loop]
    record = {"works": 2, "wrong": 0, "models": models, "command": "python -m benchmarks.zoo"}
    (tmp_path / zoo.ZOO).write_text(json.dumps(record))
    table = zoo.table(tmp_path)
    assert "| A | a 1.0 | 1 of 2 | 93.0 % | 2.0e-17 | yes | not tried | 3.2 |" in table
    assert "| C | a 1.0 | 1 of 2 | 93.0 % | 2.0e-17 | yes | refused | 3.2 |" in table
    assert "- C: a loop: use nn.GRU.\n" in f"{table}\n"
    assert "ImportError" in table
    assert "2 of 3 work, and 0 are wrong." in table


def test_each_tool_has_a_column(tmp_path: Path) -> None:
    row = {"ours": {"outcome": "shrunk"}, "theirs": {"outcome": "crashed", "why": "no"}}
    record = {"models": {"LSTM": row}, "command": "python -m benchmarks.peers"}
    (tmp_path / zoo.PEERS).write_text(json.dumps(record))
    assert "| LSTM | shrunk | crashed |" in zoo.peers(tmp_path)
    assert "Shrunk: ours: 1; theirs: 0." in zoo.peers(tmp_path)
