"""A smaller model from the folder of a trained one, without training.

folder ── model, groups, calls with training data ── prune ── out
   ╰────────────── score before ──────────────── score after ──╯
"""

from pathlib import Path
from typing import Any

import thinrnn
from thinrnn._calibration.criteria import Score
from thinrnn.lab.recipes.finish import write_beside
from thinrnn.lab.recipes.protocol import Recipe
from thinrnn.lab.run.progress import Progress


def prune_folder(
    recipe: Recipe[Any, Any],
    folder: Path,
    out: Path,
    *,
    data: Path | None,
    config: dict[str, Any] | None,
    params: float | None,
    macs: float | None,
    score: Score,
    sequential: bool,
    calls: int,
    progress: Progress,
) -> tuple[dict[str, Any], dict[str, Any], thinrnn.PruningReport]:
    """Prune the model of a folder into another one; return its scores before and after."""
    files = {} if data is None else recipe.find_texts(data)
    model, plan, batches = recipe.calibrate(
        folder, data, config=config, calls=calls, progress=progress
    )
    progress.line(f"pruning on {calls} batches")
    small = thinrnn.prune(
        model,
        batches,
        params=params,
        macs=macs,
        score=score,
        sequential=sequential,
        outputs="logits",
        plan=plan,
    )
    progress.line("measuring the original")
    before = recipe.score(folder, files, config=config, progress=progress)
    write_beside(small, folder, out, "float32")
    progress.line("measuring the small model")
    after = recipe.score(out, files, config=config, progress=progress)
    return before, after, thinrnn.pruning_report(small)
