"""thinrnn train: train a model, or continue a run that was stopped."""

from pathlib import Path
from typing import Annotated, Any

import typer

from thinrnn.lab.cli.options import Json, Set


def train(
    preset: Annotated[
        str | None,
        typer.Argument(metavar="PRESET", help="lm, or another one that 'thinrnn list' shows."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="A text file, or a folder with *train*.txt, *valid*.txt, *test*.txt; "
            "or with squad/, glove/."
        ),
    ] = None,
    train: Annotated[str | None, typer.Option(help="Training text, UTF-8.")] = None,
    valid: Annotated[str | None, typer.Option(help="Validation text.")] = None,
    test: Annotated[str | None, typer.Option(help="Test text.")] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="Time for the whole run; sizes and rates follow from it and the text."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder to make; the default is runs/PRESET.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with settings.")] = None,
    set: Set = None,
    resume: Annotated[Path | None, typer.Option(help="Continue this run where it stopped.")] = None,
    json: Json = False,
) -> None:
    """Train a dense model, a pruned one and a control; verify, time and report.

    The control has the shape of the pruned model and is trained from scratch.
    'thinrnn list --settings lm' shows all settings.
    """
    from thinrnn.lab.cli.run import finish, start_or_resume

    given = {"train": train, "valid": valid, "test": test, "minutes": minutes}
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
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
