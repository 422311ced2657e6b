"""thinrnn prune: a smaller model from a trained one, without training."""

from pathlib import Path
from typing import Annotated

import typer

from thinrnn.lab.cli.options import MODEL_FILES, Force, Json, ModelPath, refuse_to_replace
from thinrnn.lab.command import command

SCORES = ("reconstruct", "activation", "magnitude")


def prune(
    path: ModelPath,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with *train*.txt and *valid*.txt; or squad/, glove/."),
    ] = None,
    params: Annotated[
        float | None, typer.Option(help="Parameters to keep: a fraction up to 1, or a number.")
    ] = None,
    macs: Annotated[
        float | None, typer.Option(help="Mult-adds per token to keep, the same way; or both.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the model; the default is MODEL/pruned.")
    ] = None,
    score: Annotated[
        str, typer.Option(help=f"How neurons are ranked: {', '.join(SCORES)}.", metavar="SCORE")
    ] = "reconstruct",
    sequential: Annotated[
        bool, typer.Option("--sequential", help="Refit once more, on the pruned model; slower.")
    ] = False,
    calls: Annotated[
        int,
        typer.Option(
            min=2, help="Example batches, of ten texts each; a fifth of them only checks."
        ),
    ] = 20,
    kind: Annotated[
        str, typer.Option(help="Which model of a run: dense, small or control.", metavar="KIND")
    ] = "dense",
    force: Force = False,
    json: Json = False,
) -> None:
    """Make a trained model smaller in seconds, without training.

    Removes the neurons that matter least for the outputs and refits the weights of the others, then
    measures the model before and after. A run's model is pruned and measured with the run's own
    data, unless --data names a folder.
    """
    import dataclasses

    from thinrnn._table import table
    from thinrnn.lab import recipes
    from thinrnn.lab.cli.find_model import find_model
    from thinrnn.lab.cli.output import exit_if_measured, measured_rows, progress, show
    from thinrnn.lab.recipes.prune_folder import prune_folder
    from thinrnn.lab.run import InputError

    if params is None and macs is None:
        raise InputError("give --params or --macs: how small, as in --params 0.5.")
    if score not in SCORES:
        raise InputError(f"--score is '{score}': choose one of {', '.join(SCORES)}.")
    found = find_model(path, kind)
    if data is None and found.run is None:
        raise InputError(f"{path} is no run, so it has no data: give --data DIR.")
    folder = path / "pruned" if out is None else out
    if folder.resolve() == found.folder.resolve():
        raise InputError(f"{folder} is the model to prune: choose another --out.")
    refuse_to_replace(force, *(folder / name for name in MODEL_FILES))
    with progress(json) as shown:
        before, after, report = prune_folder(
            recipes.recipe(found.recipe),
            found.folder,
            folder,
            data=data,
            config=found.config,
            params=params,
            macs=macs,
            score=score,  # type: ignore[arg-type]  # one of SCORES
            sequential=sequential,
            calls=calls,
            progress=shown,
        )
    rows = [["", "before", "after"], *measured_rows(before, after)]
    text = f"{report}\n\n{table(rows, '<>')}"
    result = {"model": str(folder), "before": before, "after": after}
    last = f"wrote {folder}; next: {command('bench', found.folder, folder)}"
    show({**result, "report": dataclasses.asdict(report)}, text, last, as_json=json)
    exit_if_measured(before, after)
