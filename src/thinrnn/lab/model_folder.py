"""The weights of a model in a folder, dense or small, and the JSON files beside them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model as load_whole
from safetensors.torch import save_model as save_whole
from torch import nn

import thinrnn
from thinrnn._files import memory, open_regular, read_json, write_safely
from thinrnn._surgery.save import Precision, check_numbers
from thinrnn.errors import FolderError
from thinrnn.lab.run.files import storage
from thinrnn.lab.run.folder import MODELS

if TYPE_CHECKING:
    from pydantic import BaseModel

F = TypeVar("F", bound="BaseModel")
M = TypeVar("M", bound=nn.Module)


def save_weights(model: nn.Module, folder: Path, precision: Precision | None) -> None:
    """Write a small model, made by `compact`, with a precision; another one as it is."""
    with storage(folder):
        if precision is not None:
            thinrnn.save(model, folder, precision=precision)
        else:
            write_safely(folder / "model.safetensors", lambda file: save_whole(model, str(file)))


def load_weights(model: nn.Module, folder: Path) -> nn.Module:
    """Return a freshly built dense model as the one that was saved."""
    if os.path.lexists(folder / "thinrnn.json"):
        return thinrnn.load_(model, folder)
    file = folder / "model.safetensors"
    if not os.path.lexists(file):
        raise FolderError(f"{folder} has no {file.name}: save the model again.")
    open_regular(file, most=memory()).close()
    try:
        load_whole(model, file)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise FolderError(f"'{file}' does not hold this model: {_line(error)}.") from None
    check_numbers(model, file)
    return model


def built(make: Callable[[], M], folder: Path) -> M:
    """Return the model that recipe.json describes, if this machine has the memory for it."""
    file = folder / "recipe.json"
    try:
        with torch.device("meta"):  # sizes without memory
            size = sum(parameter.nbytes for parameter in make().parameters())
    except (RuntimeError, ValueError, TypeError, OverflowError) as error:
        raise FolderError(f"'{file}' is damaged: sizes do not fit: {_line(error)}") from None
    if size > memory():
        raise FolderError(
            f"'{file}' describes a model of {size:,} bytes, more than the memory of this machine."
        )
    return make()


def read_file(file: Path, schema: type[F]) -> F:
    """Return what a JSON file of a model holds."""
    if not os.path.lexists(file):
        inside = [name for name in MODELS.values() if (file.parent / name / file.name).exists()]
        hint = f" Its models are in {' and '.join(inside)}: name one of these." if inside else ""
        raise FolderError(
            f"{file.parent} is not a model of 'thinrnn train': it has no {file.name}.{hint}"
        )
    return read_json(file, schema)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
