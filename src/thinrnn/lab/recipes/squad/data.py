"""SQuAD as numbers, made once and kept in a cache.

    paragraphs ── tokens, one number per way of writing ── flat rows of numbers with bounds
    answers ───── first and last token

The cache is one safetensors file under a name that depends on the content of all files.
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy
import torch
from torch import Tensor

from thinrnn.lab.recipes.squad.reading import Paragraph
from thinrnn.lab.recipes.squad.tokens import place, split


@dataclass(frozen=True)
class Split:
    """A part of SQuAD as numbers; tokens are numbers of types."""

    context: Tensor  # (N,) int32, the tokens of all contexts one after the other
    offsets: Tensor  # (N, 2) int32, the characters of each token in its context
    context_bounds: Tensor  # (P + 1,) int32
    question: Tensor  # (M,) int32
    question_bounds: Tensor  # (Q + 1,) int32
    paragraph: Tensor  # (Q,) int32, which context a question is about
    answer: Tensor  # (Q, 2) int32, first and last token of the first answer found, or -1
    contexts: list[str] = field(default_factory=list)
    references: list[list[str]] = field(default_factory=list)  # answers of each question
    ids: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.paragraph)

    @property
    def context_lengths(self) -> Tensor:
        """(Q,) tokens of the context of each question."""
        return self.context_bounds.diff()[self.paragraph.long()]

    @property
    def question_lengths(self) -> Tensor:
        return self.question_bounds.diff()

    def texts(self, spans: Tensor) -> list[str]:
        """Return the texts of spans (Q, 2), one for each question."""
        return [self.text(q, first, last) for q, (first, last) in enumerate(spans.tolist())]

    def text(self, question: int, first: int, last: int) -> str:
        """Return the text of a context from one token to another."""
        number = int(self.paragraph[question])
        begin = int(self.context_bounds[number])
        start, end = int(self.offsets[begin + first, 0]), int(self.offsets[begin + last, 1])
        return self.contexts[number][start:end]


class Types:
    """The different ways in which tokens are written, numbered as they come; 0 is padding."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {"": 0}

    def number(self, tokens: Iterable[str]) -> list[int]:
        numbers = self.numbers
        return [numbers.setdefault(token, len(numbers)) for token in tokens]


def encode(
    paragraphs: Iterable[Paragraph], types: Types, *, keep_texts: bool
) -> tuple[Split, Counter[str]]:
    """Return paragraphs as numbers, and how many answers had something wrong, by what it was."""
    context, offsets, question, of, answer = (array("i") for _ in range(5))
    context_bounds, question_bounds = array("i", [0]), array("i", [0])
    contexts: list[str] = []
    references: list[list[str]] = []
    ids: list[str] = []
    problems: Counter[str] = Counter()
    for number, paragraph in enumerate(paragraphs):
        text = paragraph.context
        spans = split(text)
        context.extend(types.number(text[a:b] for a, b in spans))
        for span in spans:
            offsets.extend(span)
        context_bounds.append(len(context))
        if keep_texts:
            contexts.append(text)
        for asked in paragraph.questions:
            question.extend(types.number(asked.text[a:b] for a, b in split(asked.text)))
            question_bounds.append(len(question))
            of.append(number)
            placed = [place(text, spans, a.text, a.start) for a in asked.answers]
            problems.update(p.note for p in placed if p.note)
            found = next((p for p in placed if p.first >= 0), placed[0])
            answer.extend((found.first, found.last))
            if keep_texts:
                references.append([a.text for a in asked.answers])
                ids.append(asked.id)
    return (
        Split(
            _tensor(context),
            _tensor(offsets).view(-1, 2),
            _tensor(context_bounds),
            _tensor(question),
            _tensor(question_bounds),
            _tensor(of),
            _tensor(answer).view(-1, 2),
            contexts,
            references,
            ids,
        ),
        problems,
    )


def _tensor(numbers: "array[int]") -> Tensor:
    return torch.from_numpy(numpy.frombuffer(numbers, dtype=numpy.int32).copy())
