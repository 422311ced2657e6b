"""thinrnn compact: the small model of a run, from its last checkpoint."""

from pathlib import Path
from typing import Annotated

import typer

from thinrnn.lab.cli.options import MODEL_FILES, Force, Json, refuse_to_replace
from thinrnn.lab.command import command


def compact(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, finished or not.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the model; the default is RUN/compact.")
    ] = None,
    round_to: Annotated[
        int, typer.Option(min=1, help="Round layer sizes up to multiples of this.")
    ] = 1,
    precision: Annotated[
        str, typer.Option(help="How to store weights: float32, float16 or int8.")
    ] = "float32",
    force: Force = False,
    json: Json = False,
) -> None:
    """Remove the closed neurons from a run's gated model, verify the result and save it.

    Use it to make the small model again with other options, or during the run.
    """
    from thinrnn._table import table
    from thinrnn.lab import recipes
    from thinrnn.lab.cli.output import progress, show
    from thinrnn.lab.recipes.finish import recompact
    from thinrnn.lab.run import RunFolder

    opened = RunFolder(run)
    folder = run / "compact" if out is None else out
    if out is not None:
        refuse_to_replace(force, *(folder / name for name in MODEL_FILES))
    with progress(json) as shown:
        made = recompact(
            recipes.recipe(opened.config["recipe"]),
            opened,
            folder,
            round_to=round_to,
            precision=precision,
            progress=shown,
        )
    rows = [
        ("neurons", "-".join(map(str, made["neurons"].values()))),
        ("weights", f"{made['weights']:,}"),
        ("largest output difference", f"{made['difference']:.2g}"),
    ]
    last = f"wrote {folder}; next: {command('bench', folder)}"
    show({"model": str(folder), **made}, table(rows), last, as_json=json)
