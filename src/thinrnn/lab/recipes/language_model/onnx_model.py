"""A language model in an ONNX file, called like the one in torch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._files import read_json
from thinrnn.errors import FolderError
from thinrnn.lab.recipes.language_model.corpus import encode_file
from thinrnn.lab.recipes.language_model.data import EOS, Vocabulary
from thinrnn.lab.recipes.language_model.evaluate import mean_loss, perplexity
from thinrnn.lab.recipes.language_model.export import describe, vocabulary_hash
from thinrnn.lab.recipes.language_model.files import VocabularyFile
from thinrnn.lab.run.errors import InputError
from thinrnn.onnx.files import open_model
from thinrnn.onnx.runtime import OnnxFile


class OnnxModel(nn.Module):
    """`model(tokens, state)` returns logits and the next state, as the torch model does."""

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.file = OnnxFile(path)
        if not self.file.states:
            raise InputError(f"{path} does not take its state: export it with --streaming.")
        self.output = next(iter(self.file.outputs))
        if self.output == "best":
            raise InputError(
                f"{path} returns only its best words, and perplexity needs all logits: export it "
                "without --best, and give --best to 'thinrnn quantize'."
            )
        self.nowhere = nn.Parameter(torch.empty(0))  # tells the device of the model

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        state = self.file.first_states(tokens.shape[1]) if state is None else state
        found = self.file({"tokens": tokens.numpy(), **state})
        next_state = {name: found[f"{name}.next"] for name in self.file.states}
        return torch.from_numpy(found[self.output]), next_state


def read_vocabulary(path: str | Path) -> Vocabulary:
    """Return the vocabulary beside an ONNX file, if it is the one that belongs to it."""
    file = Path(path).parent / "vocabulary.json"
    try:
        vocabulary = read_json(file, VocabularyFile).vocabulary()
    except FolderError as error:
        raise FolderError(f"{error} Export again.") from None
    if open_model(Path(path)).metadata.get("vocabulary") != vocabulary_hash(describe(vocabulary)):
        raise FolderError(f"{file} is not the vocabulary of {path}; export again.")
    return vocabulary


def measure_on(text: Path, path: Path, *, batch: int = 10) -> Callable[[Path], float]:
    """Return a function that gives the perplexity of an ONNX file on a text."""
    recipe = open_model(path).metadata.get("recipe")
    if recipe != "language_model":
        raise InputError(
            f"{path} is not a language model from 'thinrnn export', so it cannot be measured on "
            "a text: call thinrnn.quantize_onnx with a measure of your own."
        )
    vocabulary = read_vocabulary(path)
    tokens = encode_file(text, vocabulary)

    def measure(file: Path) -> float:
        model = OnnxModel(file)
        start = vocabulary.number(EOS)
        return perplexity(mean_loss(model, tokens, batch=batch, start=start))

    return measure
