from pathlib import Path
from typing import Any

import pytest
import torch

import thinrnn
from thinrnn.lab.recipes.language_model.data import Splitting, Vocabulary
from thinrnn.lab.recipes.language_model.load import save_model
from thinrnn.lab.recipes.language_model.model import LanguageModel

WORDS = ("<unk>", "<eos>", *(f"w{i}" for i in range(28)))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pruned model, and none with its dense one."""
    folder = tmp_path_factory.mktemp("models") / "thin"
    arguments: dict[str, Any] = {"vocabulary": len(WORDS), "embedding": 8, "hidden": (12, 12)}
    torch.manual_seed(0)
    dense = LanguageModel(**arguments)
    thinrnn.attach_(dense, thinrnn.find_groups(dense, torch.zeros(3, 2, dtype=torch.long)))
    for gate in thinrnn.gates(dense).values():
        gate.log_alpha = torch.linspace(-4, 4, gate.size)
    save_model(thinrnn.compact(dense), folder, arguments, Vocabulary(WORDS, Splitting()), "float32")
    return folder
