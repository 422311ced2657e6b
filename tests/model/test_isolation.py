"""Running a user's model: errors name the line of the user's code."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

import thinrnn
from thinrnn.errors import ExampleError

MODEL = """
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        hidden = self.rnn(x)[0].view(5, 2, 6)
        return self.head(hidden)
"""


def load(file: Path) -> ModuleType:
    file.parent.mkdir(parents=True)
    file.write_text(MODEL)
    spec = importlib.util.spec_from_file_location("users_model", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("folder", ["thinrnn", "torch", "thinrnn/torch/thinrnn", "project"])
def test_errors_name_the_users_line_wherever_the_project_lies(tmp_path: Path, folder: str) -> None:
    file = tmp_path / folder / "tagger.py"
    model = load(file).Tagger()
    with pytest.raises(ExampleError) as raised:
        thinrnn.find_groups(model, torch.zeros(7, 2, 3))
    assert f"{file}:12: hidden = self.rnn(x)[0].view(5, 2, 6)" in str(raised.value)
    refused = thinrnn.find_groups(model, torch.randn(5, 2, 3)).refused
    assert any(f"{file}:12: " in refusal.reason for refusal in refused)


def test_the_default_type_of_the_process_stays() -> None:
    """Another thread may create tensors while a model is looked at in float64."""

    class Fresh(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = torch.nn.GRU(3, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.add(torch.get_default_dtype())
            start, counts = torch.ones(1, 2, 6), torch.arange(1, 6)
            hidden = self.rnn(x, start)[0] / (counts / 3)[:, None, None]
            return torch.cat([hidden, torch.zeros(5, 2, 1)], -1)

    seen: set[torch.dtype] = set()
    plan = thinrnn.find_groups(Fresh(), torch.randn(5, 2, 3))
    assert seen == {torch.float32}
    assert [refusal.reason for refusal in plan.refused] == ["returned to the caller"]
