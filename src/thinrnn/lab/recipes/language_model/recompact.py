"""The small model of a run made again: other rounding, other precision, or a run half way."""

from pathlib import Path
from typing import Any

import torch

from thinrnn._surgery.provenance import record_of
from thinrnn._surgery.save import Precision
from thinrnn.lab.models.gated_weights import gated_weights
from thinrnn.lab.models.weights import set_weights_
from thinrnn.lab.recipes.language_model.corpus import load_text
from thinrnn.lab.recipes.language_model.finish import compact_and_verify, size
from thinrnn.lab.recipes.language_model.load import save_model
from thinrnn.lab.recipes.language_model.phases import build_training, dense_shape, model_arguments
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.run import RunFolder
from thinrnn.lab.run.progress import Progress


def recompact(
    run: RunFolder, folder: Path, *, round_to: int, precision: Precision, progress: Progress
) -> dict[str, Any]:
    """Compact the gated model of the last checkpoint, verify it, save it, and say what it is."""
    settings = LanguageModelSettings(**run.config["settings"])
    weights = gated_weights(run, progress)
    text = load_text(settings)
    shape = dense_shape(settings)
    training, _ = build_training(settings, "gated", shape, text, torch.device("cpu"))
    set_weights_(training.model, training.pruning, weights)
    training.model.eval()
    small, difference = compact_and_verify(training, text, round_to=round_to)
    arguments = model_arguments(settings, shape, len(text.vocabulary))
    save_model(small, folder, arguments, text.vocabulary, precision=precision)
    neurons = {name: len(kept) for name, kept in record_of(small).kept.items()}
    return {"neurons": neurons, "difference": difference, **size(small)}
