"""A small model stored again, in fewer bits."""

import json
from pathlib import Path

from thinrnn._surgery.save import Precision
from thinrnn.lab.recipes.language_model.load import load_model, save_model


def store(folder: Path, out: Path, precision: Precision) -> None:
    """Write the small model of a folder into another one with the given precision."""
    loaded = load_model(folder)
    arguments = json.loads((folder / "recipe.json").read_bytes())["model"]
    save_model(loaded.model, out, arguments, loaded.vocabulary, precision)
