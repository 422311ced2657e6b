"""A text and settings so small that a whole run takes a second or two."""

import pytest
import torch

from thinrnn.lab.recipes.language_model.corpus import load_text
from thinrnn.lab.recipes.language_model.recipe import RECIPE
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.phase import Phase
from thinrnn.lab.run.progress import Silent


@pytest.fixture
def begin():
    """Begin a phase without a run folder."""

    def make(settings, name, device="cpu"):
        text, device = load_text(settings), torch.device(device)
        is_gated = name == "gated"
        plan = RECIPE.find_plan(settings, RECIPE.build(settings, text)) if is_gated else None
        phase = Phase(RECIPE, settings, name, text, device, plan=plan)
        if not settings.distill:
            phase.batches = RECIPE.batches(settings, text, name, device, None, Silent())
        return phase

    return make


@pytest.fixture
def tiny(texts):
    """LanguageModelSettings of a run with three epochs of nine steps in each phase."""

    def make(**changes):
        values = {
            "train": str(texts / "train.txt"),
            "valid": str(texts / "valid.txt"),
            "test": str(texts / "test.txt"),
            "embedding": 10,
            "hidden": (12, 12),
            "dropout": 0.2,
            "epochs": 3,
            "batch": 8,
            "bptt": 16,
            "lr": 0.01,
            "gate_lr": 0.1,
            "target_params": 0.5,
            "log_every": 4,
            "checkpoint_steps": 4,
            "checkpoint_seconds": 1e9,
            "tensorboard": False,
            "device": "cpu",
            "threads": 1,
            "bench_batch": 1,
            "bench_steps": 2,
            "bench_seconds": 0.0,
        }
        return LanguageModelSettings(**{**values, **changes})

    return make
