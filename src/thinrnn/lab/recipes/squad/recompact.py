"""The small model of a run made again: other rounding, other precision, or a run half way."""

from pathlib import Path
from typing import Any

from thinrnn._surgery.provenance import record_of
from thinrnn._surgery.save import Precision
from thinrnn.lab.models.gated_weights import gated_weights
from thinrnn.lab.models.weights import set_weights_
from thinrnn.lab.recipes.squad.batches import Batches
from thinrnn.lab.recipes.squad.finish import CPU, compact_and_verify
from thinrnn.lab.recipes.squad.load import save_model, size
from thinrnn.lab.recipes.squad.phases import build_training, dense_shape, model_arguments
from thinrnn.lab.recipes.squad.settings import SquadSettings
from thinrnn.lab.recipes.squad.train import known_plan, load_data
from thinrnn.lab.run import RunFolder
from thinrnn.lab.run.progress import Progress


def recompact(
    run: RunFolder, folder: Path, *, round_to: int, precision: Precision, progress: Progress
) -> dict[str, Any]:
    """Compact the gated model of the last checkpoint, verify it, save it, and say what it is."""
    settings = SquadSettings(**run.config["settings"])
    weights = gated_weights(run, progress)
    data = load_data(settings, progress)
    batches, plan = Batches(data.dev, data.tables, CPU), known_plan(run, "gated")
    shape = dense_shape(settings)
    training, _ = build_training(settings, "gated", shape, data, batches, plan)
    set_weights_(training.model, training.pruning, weights)
    training.model.eval()
    small, difference = compact_and_verify(training, batches, round_to)
    arguments = model_arguments(settings, shape, data)
    save_model(small, folder, arguments, data.vocabulary, precision)
    neurons = {name: len(kept) for name, kept in record_of(small).kept.items()}
    return {"neurons": neurons, "difference": difference, **size(small)}
