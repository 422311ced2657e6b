"""A reader as an ONNX file that takes the words of a batch, with its own words beside it."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn.lab.recipes.squad.load import LoadedReader, load_model
from thinrnn.lab.recipes.squad.model import BiDAF
from thinrnn.lab.recipes.squad.reader import FastReader
from thinrnn.lab.run.errors import InputError
from thinrnn.lab.run.files import write_atomic, write_json
from thinrnn.onnx import Export, export_onnx

UNKNOWN = "<unk>"


class FromVectors(nn.Module):
    """A reader that is given every different word once, and texts in numbers of these words."""

    def __init__(self, model: BiDAF) -> None:
        super().__init__()
        self.reader = FastReader(model)

    def forward(
        self, vectors: Tensor, characters: Tensor, context: Tensor, question: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return start and end logits (B, T).

        The words have vectors (V, D) and characters (V, L); word 0 is padding. Contexts (B, T) and
        questions (B, J) are numbers of words.
        """
        start, end = self.reader(self.reader.spelled(vectors, characters), context, question)
        return start, end


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
    characters = loaded.vocabulary.model_dump(exclude={"words"})
    numbers = {"padding": 0, "unknown": 1, "first": 2}
    write_json(Path(path).parent / "vocabulary.json", {**numbers, **characters})
    return export


def own_words(loaded: LoadedReader) -> str:
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
    words, most = 9, model.characters.num_embeddings
    vectors = torch.randn(words, model.words.embedding_dim, generator=generator)
    characters = torch.randint(1, most, (words, 16), generator=generator)
    texts = [torch.randint(1, words, (2, tokens), generator=generator) for tokens in (7, 4)]
    for text in texts:
        text[1, -1] = 0
    return vectors, characters, *texts
