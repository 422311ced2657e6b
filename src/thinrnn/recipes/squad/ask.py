"""One question about one text, answered."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from thinrnn.recipes.squad.batches import Batches
from thinrnn.recipes.squad.data import Types, encode
from thinrnn.recipes.squad.glove import find_glove
from thinrnn.recipes.squad.load import load_model, read_vocabulary, vector_size
from thinrnn.recipes.squad.model import best_spans
from thinrnn.recipes.squad.reading import Answer as Reference
from thinrnn.recipes.squad.reading import Paragraph, Question
from thinrnn.recipes.squad.vocabulary import tables_from
from thinrnn.run.errors import InputError

LONGEST = 30  # tokens of an answer


@dataclass(frozen=True)
class Answer:
    """The answer, where it stands in the text, and how sure the model is."""

    text: str
    start: int
    end: int
    probability: float


def glove_for(
    folder: Path, *, glove: Path | None, data: Path | None, config: dict[str, Any] | None
) -> Path:
    """Return the GloVe file to use: the one given, or that of the data folder or of the run."""
    if glove is not None:
        return glove
    if data is None:
        if config is None:
            raise InputError(f"{folder} holds no GloVe vectors: give --glove FILE, or --data DIR.")
        data = Path(config["settings"]["data"])
    return find_glove(data / "glove", vector_size(folder))


@torch.inference_mode()
def answer(folder: Path, context: str, question: str, glove: Path) -> Answer:
    """Return the part of a text that answers a question, by the model of a folder."""
    types = Types()
    asked = Question("", question, (Reference("", 0),))
    split, _ = encode([Paragraph(context, (asked,))], types, keep_texts=True)
    for name, tokens in (("context", split.context), ("question", split.question)):
        if not len(tokens):
            raise InputError(f"the {name} has no words: give some text.")
    tables = tables_from(types.numbers, read_vocabulary(folder), glove)
    if tables.glove.shape[1] != vector_size(folder):
        raise InputError(
            f"{glove} has vectors of {tables.glove.shape[1]} numbers, but the model was trained "
            f"with {vector_size(folder)}: give the GloVe file of that size."
        )
    model = load_model(folder, tables.glove).model
    batch = Batches(split, tables, torch.device("cpu")).take(torch.tensor([0]))
    start, end = model(*batch.inputs)
    first, last = (int(place) for place in best_spans(start, end, LONGEST))
    sure = start.softmax(-1)[0, first] * end.softmax(-1)[0, last]
    begin, behind = int(split.offsets[first, 0]), int(split.offsets[last, 1])
    return Answer(context[begin:behind], begin, behind, float(sure))
