"""Running somebody's model: errors name the line of the user's code."""

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
