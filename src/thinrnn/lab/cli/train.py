"""thinrnn train: from text to a small model, or on with a run that was stopped."""

from pathlib import Path
from typing import Annotated, Any

import typer

from thinrnn.lab.cli.options import Json, Set


def train(
    preset: Annotated[
        str | None, typer.Argument(help="lm, or another preset; 'thinrnn list' shows them.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with *train*.txt, *valid*.txt, *test*.txt; or squad/, glove/."),
    ] = None,
    train: Annotated[str | None, typer.Option(help="Training text, UTF-8.")] = None,
    valid: Annotated[str | None, typer.Option(help="Validation text.")] = None,
    test: Annotated[str | None, typer.Option(help="Test text.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to make; else runs/PRESET.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with settings.")] = None,
    set: Set = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this run where it was stopped.")
    ] = None,
    json: Json = False,
) -> None:
    """Train a dense model, a gated one and a control; compact, verify, time and report.

    All settings: thinrnn list --settings lm
    """
    from thinrnn.lab.cli.run import finish, start_or_resume

    files = {"train": train, "valid": valid, "test": test}
    values: dict[str, Any] = {name: path for name, path in files.items() if path is not None}
    run = start_or_resume(
        preset,
        values,
        data=data,
        out=out,
        config=config,
        changes=set or [],
        resume=resume,
        as_json=json,
    )
    raise typer.Exit(finish(run, as_json=json))
