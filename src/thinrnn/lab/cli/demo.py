"""thinrnn demo: all steps in a few minutes, on text that comes with Python."""

from pathlib import Path
from typing import Annotated

import typer

from thinrnn.lab.cli.options import Json, Set


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Run folder to make; the default is runs/demo.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    set: Set = None,
    resume: Annotated[Path | None, typer.Option(help="Continue a demo that was stopped.")] = None,
    json: Json = False,
) -> None:
    """Prune a small language model on Python's own documentation and check the result.

    Trains a dense LSTM, a gated one, and the small shape from scratch as a control. Compacts the
    gated model, verifies its outputs, times all three and writes a report. Takes a few minutes on
    two cores.
    """
    from thinrnn.lab.cli.run import finish, start_or_resume

    values = {} if seed is None else {"seed": seed}
    preset = None if resume is not None else "demo"
    run = start_or_resume(
        preset, values, out=out, config=None, changes=set or [], resume=resume, as_json=json
    )
    raise typer.Exit(finish(run, as_json=json))
