"""Options that several commands share."""

import os
from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable."),
]
ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A run folder, or a folder with a model.")
]
Kind = Annotated[
    str, typer.Option(help="Which model of a run: small, dense or control.", metavar="KIND")
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Best = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="K",
        help="Return the K best words of the last step instead of all logits; that is enough to "
        "continue a text.",
    ),
]


MODEL_FILES = ("model.safetensors", "thinrnn.json", "recipe.json", "vocabulary.json")


def refuse_to_replace(force: bool, *paths: Path) -> None:
    """Refuse to write files that are there, unless the user wants that."""
    from thinrnn.lab.run.errors import InputError

    for path in paths:
        if not force and os.path.lexists(path):
            raise InputError(f"{path} is there already: choose another --out, or give --force.")
