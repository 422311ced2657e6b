"""Text for pruning without training: windows from all over the training text."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from thinrnn.lab.recipes.language_model.corpus import PARTS, encode_file, find_texts, load_text
from thinrnn.lab.recipes.language_model.load import LoadedLanguageModel, load_model
from thinrnn.lab.recipes.language_model.model import LanguageModel, find_plan
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.run import InputError
from thinrnn.lab.run.progress import Progress
from thinrnn.plan import Plan

BATCH, STEPS = 10, 70  # of a call; long, because each begins with an empty state


def calibrate(
    folder: Path,
    data: Path | None,
    *,
    config: dict[str, Any] | None,
    calls: int,
    progress: Progress,
) -> tuple[LanguageModel, Plan, list[Tensor]]:
    """Return the model of a folder, its groups, and calls with windows of the training text."""
    loaded = load_model(folder)
    tokens = _training_text(loaded, data, config)
    progress.line(f"train: {len(tokens):,} tokens to calibrate on")
    assert isinstance(loaded.model, LanguageModel)
    return loaded.model, find_plan(loaded.model), spread(tokens, calls)


def spread(tokens: Tensor, calls: int) -> list[Tensor]:
    """Return calls (T, B) whose windows begin all over a text, in random order."""
    steps = min(STEPS, len(tokens) // 2)
    if not steps:
        raise InputError("the training text has fewer than two tokens: give more text.")
    starts = torch.linspace(0, len(tokens) - steps, calls * BATCH).long()
    order = torch.randperm(len(starts), generator=torch.Generator().manual_seed(0))
    windows = tokens[starts[order] + torch.arange(steps)[:, None]]  # (T, calls * B)
    return list(windows.long().split(BATCH, dim=1))


def _training_text(
    loaded: LoadedLanguageModel, data: Path | None, config: dict[str, Any] | None
) -> Tensor:
    if data is not None:
        found = find_texts(data, PARTS)
        if "train" not in found:
            raise InputError(f"{data} has no *train*.txt, the text to calibrate on.")
        return encode_file(found["train"], loaded.vocabulary)
    assert config is not None
    return load_text(LanguageModelSettings(**config["settings"])).train
