"""Texts and questions answered by a reader that stays in memory.

text ── tokens ── numbers of words; new words get a vector once ── reader ── best span
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from thinrnn.lab.recipes.squad.glove import find_glove, find_vectors, glove_size
from thinrnn.lab.recipes.squad.load import load_model, vector_size
from thinrnn.lab.recipes.squad.model import BiDAF, best_spans
from thinrnn.lab.recipes.squad.reader import FastReader
from thinrnn.lab.recipes.squad.tokens import Span, split
from thinrnn.lab.recipes.squad.vocabulary import SquadVocabulary, make_tables
from thinrnn.lab.run.errors import InputError

LONGEST = 30  # tokens of an answer
Read = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Answer:
    """The answer, where it stands in the text, and how sure the model is."""

    text: str
    start: int
    end: int
    probability: float


class Words:
    """The vectors of the words met so far, as the encoder takes them; number 0 is padding."""

    def __init__(
        self,
        reader: FastReader,
        vocabulary: SquadVocabulary,
        glove: Mapping[str, int],
        vectors: Tensor,
    ) -> None:
        self.reader, self.vocabulary = reader, vocabulary
        self.glove, self.given = glove, vectors  # rows of words, and their vectors
        self.forget()

    def forget(self) -> None:
        """Know no word again."""
        self.numbers: dict[str, int] = {"": 0}
        self.table = self._vectors([""])  # with room for more

    @property
    def vectors(self) -> Tensor:
        """(V, D), one row for each number."""
        return self.table[: len(self.numbers)]

    def number(self, tokens: Sequence[str]) -> list[int]:
        """Return the numbers of tokens; for new ones a vector is made."""
        new = [token for token in dict.fromkeys(tokens) if token not in self.numbers]
        if new:
            known, needed = len(self.numbers), len(self.numbers) + len(new)
            if needed > len(self.table):
                room = self.table.new_zeros(needed, self.table.shape[1])
                self.table = torch.cat([self.vectors, room])
            self.table[known:needed] = self._vectors(new)
            self.numbers.update({token: known + i for i, token in enumerate(new)})
        return [self.numbers[token] for token in tokens]

    def _vectors(self, tokens: list[str]) -> Tensor:
        tables = make_tables(["", *tokens], self.vocabulary, self.glove, self.given)
        return self.reader.words(tables.rows[1:].long(), tables.characters[1:].long())


class Answerer:
    """Answers questions about texts; `read` may be the reader in another runtime."""

    def __init__(self, words: Words, read: Read | None = None) -> None:
        self.words = words
        self.read: Read = words.reader if read is None else read

    @torch.inference_mode()
    def answer(self, contexts: Sequence[str], questions: Sequence[str]) -> list[Answer]:
        """Return one answer for each question about the context of the same place."""
        spans = [spans_of("context", text) for text in contexts]
        tokens = list(map(tokens_at, contexts, spans))
        asked = [tokens_at(text, spans_of("question", text)) for text in questions]
        rest = iter(self.words.number([word for one in (*tokens, *asked) for word in one]))
        numbers = [
            padded([list(islice(rest, len(one))) for one in part]) for part in (tokens, asked)
        ]
        start, end = self.read(self.words.vectors, *numbers)
        first, last = best_spans(start, end, LONGEST)
        sure = [
            logits.softmax(-1).gather(1, place.unsqueeze(1)).squeeze(1)
            for logits, place in ((start, first), (end, last))
        ]
        answers = []
        found = (first.tolist(), last.tolist(), (sure[0] * sure[1]).tolist())
        for text, places, i, j, p in zip(contexts, spans, *found, strict=True):
            (begin, _), (_, behind) = places[i], places[j]
            answers.append(Answer(text[begin:behind], begin, behind, p))
        return answers


def spans_of(name: str, text: str) -> list[Span]:
    """Return where the tokens of a text are; `name` says in an error which text has none."""
    spans = split(text)
    if not spans:
        raise InputError(f"the {name} has no words: give some text.")
    return spans


def tokens_at(text: str, spans: Sequence[Span]) -> list[str]:
    """Return the tokens of a text."""
    return [text[a:b] for a, b in spans]


def padded(texts: list[list[int]]) -> Tensor:
    """Return texts side by side, (B, T); behind the end of a text is 0."""
    longest = max(map(len, texts))
    return torch.tensor([text + [0] * (longest - len(text)) for text in texts])


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
    texts = {"context": context, "question": question}
    words = [word for name, text in texts.items() for word in tokens_at(text, spans_of(name, text))]
    size = glove_size(glove)
    if size != wanted:
        raise InputError(
            f"{glove} has vectors of {size} numbers, but the model was trained with {wanted}: "
            "give the GloVe file of that size."
        )
    rows, vectors = find_vectors(glove, {word.lower() for word in words})
    loaded = load_model(folder, vectors)
    assert isinstance(loaded.model, BiDAF)
    with torch.inference_mode():
        known = Words(FastReader(loaded.model), loaded.vocabulary, rows, vectors)
        (found,) = Answerer(known).answer([context], [question])
    return found
