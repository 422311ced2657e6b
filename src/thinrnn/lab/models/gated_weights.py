"""The gated model of a run, as its last checkpoint has it."""

from typing import Any

from thinrnn.errors import RunError
from thinrnn.lab.command import command
from thinrnn.lab.run import RunFolder
from thinrnn.lab.run.progress import Progress


def gated_weights(run: RunFolder, progress: Progress) -> dict[str, Any]:
    """Return the weights of the finished size or, before there are any, those of the last step."""
    saved, notes = run.checkpoints.latest("gated")
    for note in notes:
        progress.line(note)
    if saved is None:
        raise RunError(
            f"{run.path} has no checkpoint of a gated model: "
            f"go on with '{command('train', '--resume', run.path)}'."
        )
    weights: dict[str, Any] = saved["training"]["best"] or saved["training"]["model"]
    return weights
