"""thinrnn eval: the quality of a saved model."""

from pathlib import Path
from typing import Annotated

import typer

from thinrnn.lab.cli.options import Json, Kind, ModelPath
from thinrnn.lab.command import command


def evaluate(
    path: ModelPath,
    data: Annotated[
        Path | None, typer.Option(help="Folder with *valid*.txt and *test*.txt; or squad/, glove/.")
    ] = None,
    valid: Annotated[Path | None, typer.Option(help="Validation text.")] = None,
    test: Annotated[Path | None, typer.Option(help="Test text.")] = None,
    kind: Kind = "small",
    json: Json = False,
) -> None:
    """Measure the quality and the size of a saved model.

    A run's model is measured on the run's own texts, unless others are given.
    """
    from thinrnn._table import table
    from thinrnn.lab import recipes
    from thinrnn.lab.cli.find_model import find_model
    from thinrnn.lab.cli.output import exit_if_measured, measured_rows, progress, show
    from thinrnn.lab.run import InputError

    found = find_model(path, kind)
    recipe = recipes.recipe(found.recipe)
    files = {} if data is None else recipe.find_texts(data)
    files |= {name: file for name, file in (("valid", valid), ("test", test)) if file is not None}
    if not files and found.run is None:
        raise InputError(
            f"{path} is not a run, so it has no text: give --data DIR or --valid FILE."
        )
    with progress(json) as shown:
        measured = recipe.score(found.folder, files, config=found.config, progress=shown)
    last = f"measured {found.folder}, wrote nothing; next: {command('bench', path)}"
    result = {"model": str(found.folder), **measured}
    show(result, table(measured_rows(measured)), last, as_json=json)
    exit_if_measured(measured)
