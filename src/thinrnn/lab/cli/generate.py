"""thinrnn generate: text from a language model."""

from typing import Annotated

import typer

from thinrnn.lab.cli.options import Json, Kind, ModelPath
from thinrnn.lab.command import command


def generate(
    path: ModelPath,
    prompt: Annotated[str, typer.Option(help="Text to continue.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Tokens to add.")] = 60,
    temperature: Annotated[
        float,
        typer.Option(min=0, help="Lower is more predictable; 0 takes the likeliest tokens."),
    ] = 0.8,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    kind: Kind = "small",
    json: Json = False,
) -> None:
    """Continue a text with a trained language model."""
    import math

    from thinrnn.lab import recipes
    from thinrnn.lab.cli.find_model import find_model
    from thinrnn.lab.cli.output import show
    from thinrnn.lab.run import InputError

    if not math.isfinite(temperature):
        raise InputError(f"--temperature is {temperature}, but must be a number.")
    found = find_model(path, kind)
    recipes.require_recipe(found.recipe, "language_model")
    recipe = recipes.language_model_recipe()
    loaded = recipe.load(found.folder)
    text = recipe.continue_text(loaded, prompt, tokens=tokens, temperature=temperature, seed=seed)
    last = f"\nused {found.folder}, wrote nothing; next: {command('bench', path)}"
    show({"model": str(found.folder), "prompt": prompt, "text": text}, text, last, as_json=json)
