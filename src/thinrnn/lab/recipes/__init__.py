"""The experiments, each a folder with data, model, settings and training, and their presets."""

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
    """Settings that have a name; `expected` says what they reach, where that has been measured.

    `corpus` names the public text that they are made for, if any.
    """

    name: str
    recipe: str
    summary: str
    settings: Callable[[], Any]
    expected: str = ""
    corpus: str = ""


def presets() -> dict[str, Preset]:
    """Return all presets by name."""
    found: dict[str, Preset] = {}
    for recipe in RECIPES:
        module = importlib.import_module(f"thinrnn.lab.recipes.{recipe}.presets")
        found.update({preset.name: preset for preset in module.PRESETS})
    return found


def preset(name: str) -> Preset:
    """Return one preset, or say which there are."""
    known = presets()
    if name not in known:
        raise InputError(f"there is no preset '{name}': choose one of {', '.join(known)}.")
    return known[name]


def part(recipe: str, name: str) -> ModuleType:
    """Return one module of a recipe: part("language_model", "train")."""
    if recipe not in RECIPES:
        raise InputError(f"there is no recipe '{recipe}': choose one of {', '.join(RECIPES)}.")
    path = f"thinrnn.lab.recipes.{recipe}.{name}"
    if importlib.util.find_spec(path) is None:
        raise InputError(f"models of the recipe '{recipe}' cannot do that: it has no '{name}'.")
    return importlib.import_module(path)
