"""The experiments, each a folder with data, model, settings and training, and their presets."""

import difflib
import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from thinrnn.lab.run.errors import InputError

# Each recipe is a package with `presets.PRESETS`, `train.train(settings, ...)` and `load.load_...`.
RECIPES = ("language_model", "squad")


@dataclass(frozen=True)
class Preset:
    """Settings with a name.

    Attributes:
        name: What `thinrnn train` takes.
        recipe: The package that trains it.
        summary: One line for `thinrnn list`.
        settings: Builds the settings.
        expected: The measured result, or an empty text.
        corpus: The public corpus that the preset needs, or an empty text.
        is_general: True for presets that work on any text. The others reproduce the results of
            the paper; `thinrnn list` shows them only with `--all`.
    """

    name: str
    recipe: str
    summary: str
    settings: Callable[[], Any]
    expected: str = ""
    corpus: str = ""
    is_general: bool = False


def presets(*, all: bool = True) -> dict[str, Preset]:
    """Return the presets by name; with `all=False` only the general ones."""
    found: dict[str, Preset] = {}
    for recipe in RECIPES:
        module = importlib.import_module(f"thinrnn.lab.recipes.{recipe}.presets")
        found.update({preset.name: preset for preset in module.PRESETS})
    return {name: preset for name, preset in found.items() if all or preset.is_general}


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


def part(recipe: str, name: str) -> ModuleType:
    """Return one module of a recipe: part("language_model", "train")."""
    if recipe not in RECIPES:
        raise InputError(f"there is no recipe '{recipe}': choose one of {', '.join(RECIPES)}.")
    path = f"thinrnn.lab.recipes.{recipe}.{name}"
    if importlib.util.find_spec(path) is None:
        raise InputError(f"models of the recipe '{recipe}' cannot do that: it has no '{name}'.")
    return importlib.import_module(path)
