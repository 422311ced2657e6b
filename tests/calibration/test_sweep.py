"""sweep: several sizes from one pass of statistics."""

from pathlib import Path

import pytest
import torch
from paper_model import LanguageModel
from torch import nn

import thinrnn
from thinrnn.errors import TargetError


def test_each_size_is_what_prune_makes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = LanguageModel(20, 12, (10, 8)).eval()
    calls = [torch.randint(20, (12, 8)) for _ in range(5)]
    table = thinrnn.sweep(model, calls, sizes=[0.75, 0.6], of="macs", seconds=0.01)
    full, *rows = table
    assert full.params == thinrnn.count(model).params
    for row in rows:
        assert row.macs <= row.size * full.macs
        one = thinrnn.prune(model, calls, macs=row.size)
        torch.testing.assert_close(row.model(calls[0]), one(calls[0]))
    assert len(str(table).splitlines()) == 5
    pytest.importorskip("matplotlib")
    assert table.plot(tmp_path / "sweep.svg").read_text().endswith("</svg>\n")


def test_what_sizes_are_parts_of() -> None:
    with pytest.raises(TargetError):
        thinrnn.sweep(nn.LSTM(3, 4), [torch.randn(5, 2, 3)], of="bytes")  # type: ignore[arg-type]
