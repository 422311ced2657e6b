"""A small model stored again, in fewer bits."""

from pathlib import Path

from thinrnn.recipes.model_folder import read_table
from thinrnn.recipes.squad.load import load_model, save_model
from thinrnn.save import Precision


def store(folder: Path, out: Path, precision: Precision) -> None:
    """Write the small model of a folder into another one with the given precision."""
    loaded = load_model(folder)
    arguments = read_table(folder / "recipe.json")["model"]
    save_model(loaded.model, out, arguments, loaded.vocabulary, precision)
