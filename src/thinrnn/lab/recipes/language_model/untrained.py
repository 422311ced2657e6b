"""Untrained dense models, to time small ones against, and sizes written as text."""

from pathlib import Path

from torch import nn

from thinrnn.lab.model_folder import read_file
from thinrnn.lab.recipes.language_model.files import LanguageModelFile
from thinrnn.lab.recipes.language_model.load import load_model, save_model
from thinrnn.lab.recipes.language_model.model import LanguageModel
from thinrnn.lab.run.errors import InputError
from thinrnn.nn.rhn import RHN


def build_dense(like: Path, folder: Path, shape: str | None) -> Path:
    """Write an untrained dense model into a folder.

    Args:
        like: The folder of a small model, whose vocabulary the dense model gets.
        folder: Where to write it.
        shape: Its sizes, like "1500-1500-1500"; all words then have vectors of one size. None
            takes the sizes that the small model was pruned from.

    Returns:
        The folder.

    Raises:
        InputError: The shape cannot be read.
    """
    arguments = read_file(like / "recipe.json", LanguageModelFile).arguments()
    if shape is not None:
        embedding, *hidden = parse_shape(shape)
        arguments |= {"embedding": embedding, "hidden": hidden, "rare": 0}
    arguments["hidden"] = tuple(arguments["hidden"])
    save_model(LanguageModel(**arguments), folder, arguments, load_model(like).vocabulary)
    return folder


def parse_shape(text: str) -> list[int]:
    """Return the sizes of "1500-1500-1500": embedding, then one or more layers."""
    sizes = text.split("-")
    if len(sizes) < 2 or not all(size.isdigit() and int(size) for size in sizes):
        raise InputError(
            f"'{text}' is not a shape: write embedding and layers like 1500-1500-1500."
        )
    return [int(size) for size in sizes]


def sizes_of(model: nn.Module) -> str:
    """Return the widths of embedding and layers, as in 1500-1500-1500, and that of rare words."""
    widths = []
    rare = ""
    for name, module in model.named_modules():
        if name == "rare":
            rare = f", rare {module.embedding_dim}"
        elif isinstance(module, nn.Embedding):
            widths.append(module.embedding_dim)
        elif isinstance(module, nn.RNNBase):
            widths += [module.hidden_size] * module.num_layers
        elif isinstance(module, RHN):
            widths.append(module.hidden_size)
    return "-".join(map(str, widths)) + rare
