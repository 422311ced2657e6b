"""thinrnn ask: a question about a text, answered by a small model."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from thinrnn.lab.cli.options import Json, Kind, ModelPath
from thinrnn.lab.command import command

AROUND = 300  # characters of the text shown before and behind the answer


def ask(
    path: ModelPath,
    context: Annotated[Path, typer.Option(help="Text file, UTF-8.")],
    question: Annotated[str, typer.Option(help="What you want to know.")],
    glove: Annotated[Path | None, typer.Option(help="GloVe file, plain or gzipped.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder that holds glove/; else that of the run.")
    ] = None,
    kind: Kind = "small",
    json: Json = False,
) -> None:
    """Answer a question about a text, and show where the answer stands."""
    import dataclasses

    from thinrnn.lab import recipes
    from thinrnn.lab.cli.find_model import find_model
    from thinrnn.lab.cli.output import show
    from thinrnn.lab.recipes.language_model.data import read_pieces

    found = find_model(path, kind)
    part = recipes.part(found.recipe, "ask")
    text = "".join(read_pieces(context))
    vectors = part.glove_for(found.folder, glove=glove, data=data, config=found.config)
    answer = part.answer(found.folder, text, question, vectors)
    shown = marked(text, answer.start, answer.end, colours=sys.stdout.isatty() and not json)
    last = (
        f"\n{answer.text} (probability {answer.probability:.2f}), said by {found.folder}; "
        f"next: {command('bench', path)}"
    )
    result = {"model": str(found.folder), "question": question, **dataclasses.asdict(answer)}
    show(result, shown, last, as_json=json)


def marked(text: str, start: int, end: int, *, colours: bool) -> str:
    """Return the text around a span, which is marked: in reverse, or in brackets."""
    before, behind = text[max(0, start - AROUND) : start], text[end : end + AROUND]
    open_, close = ("\x1b[7m", "\x1b[0m") if colours else ("[[", "]]")
    left = "..." if start > AROUND else ""
    right = "..." if end + AROUND < len(text) else ""
    return f"{left}{before}{open_}{text[start:end]}{close}{behind}{right}"
