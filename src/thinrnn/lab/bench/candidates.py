"""The models to compare, each in a folder with all the files that the runtimes read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from thinrnn.lab.bench.runtimes import BEST, FILES
from thinrnn.lab.models.model_folder import read_table
from thinrnn.lab.recipes.language_model.export import export_model
from thinrnn.lab.recipes.language_model.load import load_model, save_model
from thinrnn.lab.recipes.language_model.model import LanguageModel
from thinrnn.lab.run.errors import InputError
from thinrnn.nn.rhn import RHN


@dataclass(frozen=True)
class Candidate:
    """A model that is timed: where PyTorch finds it, where ONNX Runtime does, and its size."""

    name: str
    folder: Path
    files: Path
    size: dict[str, Any]

    def place(self, runtime: str) -> Path:
        return self.files if runtime in FILES else self.folder

    def bytes(self, runtime: str) -> int:
        """Return what the file takes, or in PyTorch the weights in float32."""
        if runtime in FILES:
            return (self.files / FILES[runtime]).stat().st_size
        return int(self.size["bytes"])


def make_candidate(name: str, folder: Path, files: Path, runtimes: list[str]) -> Candidate:
    """Return a model with the files that its runtimes need, written into a folder for them."""
    from thinrnn._surgery.count import count
    from thinrnn.onnx import quantize_onnx, top_k_onnx

    loaded = load_model(folder)
    counted = count(loaded.model, loaded.example(1, 1))
    size: dict[str, Any] = {"sizes": sizes_of(loaded.model)}
    size |= {key: getattr(counted, key) for key in ("params", "weights", "macs", "bytes")}
    files.mkdir(parents=True, exist_ok=True)
    if set(runtimes) & set(FILES):
        exported = export_model(folder, files / FILES["onnx"])
        size["onnx_difference"] = exported.difference
    if {"int8", "best"} & set(runtimes):
        quantize_onnx(files / FILES["onnx"], files / FILES["int8"])
    if "best" in runtimes:
        k = min(BEST, len(loaded.vocabulary))
        top_k_onnx(files / FILES["int8"], files / FILES["best"], k=k)
    return Candidate(name, folder, files, size)


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


def build_dense(like: Path, folder: Path, shape: str | None) -> Path:
    """Write an untrained dense model, of the shape that a small one was cut from or a given one.

    Weights take the same time whatever they are, so an untrained model is timed like a trained one.
    In a model of a given shape all words have vectors of one size.
    """
    arguments = dict(read_table(like / "recipe.json")["model"])
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
        raise InputError(f"'{text}' is no shape: write embedding and layers like 1500-1500-1500.")
    return [int(size) for size in sizes]
