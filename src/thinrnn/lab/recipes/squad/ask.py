"""One question about one text, answered."""

from pathlib import Path
from typing import Any

import torch

from thinrnn.lab.recipes.squad.answering import Answer, Answerer, Words
from thinrnn.lab.recipes.squad.glove import find_glove, find_vectors, glove_size
from thinrnn.lab.recipes.squad.load import load_model, vector_size
from thinrnn.lab.recipes.squad.model import BiDAF
from thinrnn.lab.recipes.squad.reader import FastReader
from thinrnn.lab.recipes.squad.tokens import split
from thinrnn.lab.run.errors import InputError


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
        if not data.is_dir():
            raise InputError(f"the run's data, {data}, is not here: give --glove FILE.")
    return find_glove(data / "glove", vector_size(folder))


def answer(folder: Path, context: str, question: str, glove: Path) -> Answer:
    """Return the part of a text that answers a question, by the model of a folder."""
    wanted = vector_size(folder)
    for name, text in (("context", context), ("question", question)):
        if not split(text):
            raise InputError(f"the {name} has no words: give some text.")
    size = glove_size(glove)
    if size != wanted:
        raise InputError(
            f"{glove} has vectors of {size} numbers, but the model was trained with {wanted}: "
            "give the GloVe file of that size."
        )
    spoken = {text[a:b].lower() for text in (context, question) for a, b in split(text)}
    rows, vectors = find_vectors(glove, spoken)
    loaded = load_model(folder, vectors)
    assert isinstance(loaded.model, BiDAF)
    with torch.inference_mode():
        words = Words(FastReader(loaded.model), loaded.vocabulary, rows, vectors)
        (found,) = Answerer(words).answer([context], [question])
    return found
