"""A reader as an ONNX file that takes word vectors, with its own words beside it."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn.export import Export, export_onnx
from thinrnn.recipes.squad.load import Loaded, load_model
from thinrnn.recipes.squad.model import BiDAF
from thinrnn.run.errors import InputError
from thinrnn.run.files import write_atomic, write_json

UNKNOWN = "<unk>"


class FromVectors(nn.Module):
    """A reader that is given vectors (B, T, D); a word without characters is padding."""

    def __init__(self, model: BiDAF) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        context: Tensor,
        context_characters: Tensor,
        question: Tensor,
        question_characters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return start and end logits (B, T)."""
        return self.model.read(
            (context, context_characters, (context_characters > 0).any(-1)),
            (question, question_characters, (question_characters > 0).any(-1)),
        )


def export_model(
    folder: str | Path,
    path: str | Path,
    *,
    streaming: bool = False,
    metadata: dict[str, Any] | None = None,
) -> Export:
    """Write the model of a folder as ONNX; return what was checked.

    Beside it go words.txt, the vectors of the words that it trained, in GloVe's format and to be
    looked up before GloVe, and vocabulary.json, the characters in the order of their numbers.
    """
    if streaming:
        raise InputError("a reader reads texts from both ends: leave --streaming out.")
    loaded = load_model(folder)
    model = loaded.model
    assert isinstance(model, BiDAF)
    about = {"recipe": "squad", **(metadata or {})}
    export = export_onnx(FromVectors(model), path, example(model), metadata=about)
    write_atomic(Path(path).parent / "words.txt", own_words(loaded))
    vocabulary = loaded.vocabulary
    write_json(
        Path(path).parent / "vocabulary.json",
        {
            "word_length": vocabulary.word_length,
            "padding": 0,
            "unknown": 1,
            "first": 2,
            "characters": list(vocabulary.characters),
        },
    )
    return export


def own_words(loaded: Loaded) -> str:
    """Return the words with trained rows and their vectors, as lines of a GloVe file."""
    rows = loaded.model.get_parameter("words.weight").tolist()
    words = (UNKNOWN, *loaded.vocabulary.words)
    return "".join(
        f"{word} {' '.join(f'{number:.6g}' for number in row)}\n"
        for word, row in zip(words, rows[1:], strict=True)
    )


def example(model: BiDAF) -> tuple[Tensor, ...]:
    """Return inputs of two questions, with padding."""
    generator = torch.Generator().manual_seed(0)

    def part(tokens: int) -> tuple[Tensor, Tensor]:
        vectors = torch.randn(2, tokens, model.words.embedding_dim, generator=generator)
        most = model.characters.num_embeddings
        letters = torch.randint(1, most, (2, tokens, 16), generator=generator)
        letters[1, -1] = 0
        return vectors, letters

    return *part(7), *part(4)
