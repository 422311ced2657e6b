"""thinrnn ask: a question about a text."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from thinrnn.lab.cli.options import Json, Kind, ModelPath
from thinrnn.lab.command import command

AROUND = 300  # characters of the text shown before and after the answer


def ask(
    path: ModelPath,
    context: Annotated[Path, typer.Option(help="Text to search for the answer: a UTF-8 file.")],
    question: Annotated[str, typer.Option(help="The question.")],
    glove: Annotated[Path | None, typer.Option(help="GloVe file, plain or gzipped.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with glove/; the default is the run's.")
    ] = None,
    kind: Kind = "small",
    json: Json = False,
) -> None:
    """Answer a question about a text with a trained reader, and mark the answer in the text."""
    import dataclasses

    from thinrnn.lab import recipes
    from thinrnn.lab.cli.find_model import find_model
    from thinrnn.lab.cli.output import show
    from thinrnn.lab.recipes.language_model.data import read_pieces

    found = find_model(path, kind)
    recipes.require_recipe(found.recipe, "squad")
    recipe = recipes.squad_recipe()
    text = "".join(read_pieces(context))
    vectors = recipe.glove_for(found.folder, glove=glove, data=data, config=found.config)
    answer = recipe.answer(found.folder, text, question, vectors)
    shown = marked(text, answer.start, answer.end, colours=sys.stdout.isatty() and not json)
    text = f"{shown}\n\nanswer: {answer.text} (probability {answer.probability:.2f})"
    last = f"used {found.folder}, wrote nothing; next: {command('bench', path)}"
    result = {"model": str(found.folder), "question": question, **dataclasses.asdict(answer)}
    show(result, text, last, as_json=json)


def marked(text: str, start: int, end: int, *, colours: bool) -> str:
    """Return the text around a span; the span is in reverse colours, or in double brackets."""
    before, behind = text[max(0, start - AROUND) : start], text[end : end + AROUND]
    open_, close = ("\x1b[7m", "\x1b[0m") if colours else ("[[", "]]")
    left = "..." if start > AROUND else ""
    right = "..." if end + AROUND < len(text) else ""
    return f"{left}{before}{open_}{text[start:end]}{close}{behind}{right}"
