"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be given many times."),
]
ModelPath = Annotated[Path, typer.Argument(help="A run folder, or a folder with a model.")]
Kind = Annotated[
    str, typer.Option(help="Which model of a run: small, dense or control.", metavar="KIND")
]
Best = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="K",
        help="Give the K best words of the last step instead of all logits: what is needed to "
        "continue a text, and nothing of the size of the vocabulary leaves the runtime.",
    ),
]
