"""A small model stored again, in fewer bits."""

from pathlib import Path

from thinrnn._surgery.save import Precision
from thinrnn.lab.models.model_folder import read_table
from thinrnn.lab.recipes.squad.load import load_model, save_model


def store(folder: Path, out: Path, precision: Precision) -> None:
    """Write the small model of a folder into another one with the given precision."""
    loaded = load_model(folder)
    arguments = read_table(folder / "recipe.json")["model"]
    save_model(loaded.model, out, arguments, loaded.vocabulary, precision)
