"""The weights of a model in a folder, dense or small, and the JSON files beside them."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_model as load_whole
from safetensors.torch import save_model as save_whole
from torch import nn

import thinrnn
from thinrnn._files import write_safely
from thinrnn._surgery.save import Precision
from thinrnn.errors import FolderError
from thinrnn.lab.run.files import storage
from thinrnn.lab.run.folder import MODELS


def save_weights(model: nn.Module, folder: Path, precision: Precision | None) -> None:
    """Write a small model, made by `compact`, with a precision; another one as it is."""
    with storage(folder):
        if precision is not None:
            thinrnn.save(model, folder, precision=precision)
        else:
            write_safely(folder / "model.safetensors", lambda file: save_whole(model, str(file)))


def load_weights(model: nn.Module, folder: Path) -> nn.Module:
    """Return a freshly built dense model as the one that was saved."""
    if (folder / "thinrnn.json").exists():
        return thinrnn.load_(model, folder)
    file = folder / "model.safetensors"
    try:
        load_whole(model, file)
    except FileNotFoundError:
        raise FolderError(f"{folder} has no {file.name}: save the model again.") from None
    except (SafetensorError, RuntimeError) as error:
        raise FolderError(f"{file} does not hold this model: {error}.") from None
    return model


def read_table(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file of a model."""
    try:
        found = json.loads(file.read_bytes())
        if not isinstance(found, dict):
            raise ValueError("it holds no table")
        return found
    except (FileNotFoundError, NotADirectoryError):
        inside = [name for name in MODELS.values() if (file.parent / name / file.name).exists()]
        hint = f" Its models are in {' and '.join(inside)}: name one of these." if inside else ""
        raise FolderError(
            f"{file.parent} is not a model of 'thinrnn train': it has no {file.name}.{hint}"
        ) from None
    except ValueError as error:
        raise FolderError(f"{file} is not valid JSON: {error}.") from None
