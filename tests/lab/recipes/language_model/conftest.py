"""A text and settings so small that a whole run takes a second or two."""

import pytest

from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings


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
