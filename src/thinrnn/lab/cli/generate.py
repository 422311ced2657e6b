"""thinrnn generate: the small model continues a text, to see that it still speaks."""

from typing import Annotated

import typer

from thinrnn.lab.cli.options import Json, Kind, ModelPath
from thinrnn.lab.command import command


def generate(
    path: ModelPath,
    prompt: Annotated[str, typer.Option(help="Text to continue.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Tokens to add.")] = 60,
    temperature: Annotated[
        float, typer.Option(min=0, help="0 takes the likeliest token each time.")
    ] = 0.8,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    kind: Kind = "small",
    json: Json = False,
) -> None:
    """Continue a prompt with a language model of a run."""
    from thinrnn.lab import recipes
    from thinrnn.lab.cli.find_model import find_model
    from thinrnn.lab.cli.output import show

    found = find_model(path, kind)
    loaded = recipes.part(found.recipe, "load").load_model(found.folder)
    text = recipes.part(found.recipe, "generate").continue_text(
        loaded, prompt, tokens=tokens, temperature=temperature, seed=seed
    )
    last = f"\nsaid by {found.folder}, nothing written; next: {command('bench', path)}"
    show({"model": str(found.folder), "prompt": prompt, "text": text}, text, last, as_json=json)
