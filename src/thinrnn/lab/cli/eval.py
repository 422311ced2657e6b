"""thinrnn eval: how good a saved model is, measured again."""

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
    """Measure a saved model on a text: on the run's own, or on the one given."""
    import math

    from thinrnn.lab import recipes
    from thinrnn.lab.cli.find_model import find_model
    from thinrnn.lab.cli.output import progress, show
    from thinrnn.lab.run import InputError
    from thinrnn.lab.table import table

    found = find_model(path, kind)
    texts = recipes.part(found.recipe, "texts")
    files = {} if data is None else texts.find_texts(data)
    files |= {name: file for name, file in (("valid", valid), ("test", test)) if file is not None}
    if not files and found.run is None:
        raise InputError(f"{path} does not say on which text: give --data DIR or --valid FILE.")
    with progress(json) as shown:
        score = recipes.part(found.recipe, "load").score_model
        measured = score(found.folder, files, config=found.config, progress=shown)
    numbers = {k: f"{v:.3f}" if isinstance(v, float) else f"{v:,}" for k, v in measured.items()}
    names = {"params": "parameters", "macs": "mult-adds/step"}
    text = table([(names.get(n, n.replace("_", " ")), value) for n, value in numbers.items()])
    last = f"measured {found.folder}, nothing written; next: {command('bench', path)}"
    show({"model": str(found.folder), **measured}, text, last, as_json=json)
    raise typer.Exit(0 if all(map(math.isfinite, measured.values())) else 1)
