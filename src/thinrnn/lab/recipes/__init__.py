"""The experiments, each a folder with data, model and settings, and their presets."""

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from thinrnn.lab.recipes.named_settings import Preset
from thinrnn.lab.run.errors import InputError

if TYPE_CHECKING:
    from thinrnn.lab.recipes.language_model.recipe import LanguageModelRecipe
    from thinrnn.lab.recipes.protocol import Recipe
    from thinrnn.lab.recipes.squad.recipe import SquadRecipe


def presets(*, all: bool = True) -> dict[str, Preset]:
    """Return the presets by name; with `all=False` only the general ones."""
    from thinrnn.lab.recipes.language_model import presets, ptb, ptb_rhn
    from thinrnn.lab.recipes.squad import presets as squad

    every = presets.PRESETS | ptb.PRESETS | ptb_rhn.PRESETS | squad.PRESETS
    return {name: preset for name, preset in every.items() if all or preset.is_general}


def preset(name: str) -> Preset:
    """Return the preset of this name.

    Raises:
        InputError: No preset has this name.
    """
    known = presets()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else "'thinrnn list --all' shows all presets."
    raise InputError(f"there is no preset '{name}': {hint}")


def language_model_recipe() -> "LanguageModelRecipe":
    """Return the recipe of language models."""
    from thinrnn.lab.recipes.language_model.recipe import RECIPE

    return RECIPE


def squad_recipe() -> "SquadRecipe":
    """Return the recipe of question answering on SQuAD."""
    from thinrnn.lab.recipes.squad.recipe import RECIPE

    return RECIPE


# Functions, because recipes bring torch, which `thinrnn list` does without.
RECIPES: "dict[str, Callable[[], Recipe[Any, Any]]]" = {
    "language_model": language_model_recipe,
    "squad": squad_recipe,
}


def recipe(name: str) -> "Recipe[Any, Any]":
    """Return the recipe of this name.

    Raises:
        InputError: No recipe has this name.
    """
    if name not in RECIPES:
        raise InputError(f"there is no recipe '{name}': choose one of {', '.join(RECIPES)}.")
    return RECIPES[name]()


def require_recipe(name: str, needed: str) -> None:
    """Refuse a model of a recipe where only those of another one will do."""
    if name != needed:
        raise InputError(f"this needs a model of the recipe '{needed}', not of '{name}'.")
