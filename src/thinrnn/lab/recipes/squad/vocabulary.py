"""The words of a model: rows that it trained itself, characters, and GloVe beside them.

row 0      padding
row 1      a word that neither the model nor GloVe knows
row 2 ...  words outside GloVe that are frequent in the training text; trained, and saved
behind     GloVe's vectors; not trained, and not saved
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy
import torch
from pydantic import Field
from torch import Tensor

from thinrnn._schema import Schema
from thinrnn.lab.recipes.squad.glove import find_vectors

PAD, UNKNOWN, FIRST = 0, 1, 2


class SquadVocabulary(Schema):
    """The words with trained rows, in lower case, and the characters; numbered from 2 on."""

    word_length: Annotated[int, Field(ge=1, le=1000)] = 16  # characters of a word that are read
    characters: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def rows(self) -> int:
        """How many trained rows there are, with padding and the unknown word."""
        return FIRST + len(self.words)

    @property
    def character_rows(self) -> int:
        return FIRST + len(self.characters)

    @cached_property
    def row_of(self) -> dict[str, int]:
        """The trained rows by their words."""
        return {word: FIRST + i for i, word in enumerate(self.words)}

    @cached_property
    def number_of(self) -> dict[str, int]:
        """The numbers of the characters."""
        return {character: FIRST + i for i, character in enumerate(self.characters)}


@dataclass(frozen=True)
class Tables:
    """What every type (a token as it is written) is made of; type 0 is padding."""

    rows: Tensor  # (V,) int32
    characters: Tensor  # (V, L) int16
    glove: Tensor  # (G, D), the vectors of the words that occur


def make_vocabulary(
    counts: Mapping[str, int], glove: Iterable[str], *, more_than: int, characters_more_than: int
) -> SquadVocabulary:
    """Return the vocabulary of a training text, most frequent first, ties by name."""
    lower: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    for token, count in counts.items():
        lower[token.lower()] += count
        for character in token:
            characters[character] += count
    known = set(glove)
    return SquadVocabulary(
        words=_frequent({w: n for w, n in lower.items() if w not in known}, more_than),
        characters=_frequent(characters, characters_more_than),
    )


def _frequent(counts: Mapping[str, int], more_than: int) -> tuple[str, ...]:
    found = [name for name, count in counts.items() if count > more_than]
    return tuple(sorted(found, key=lambda name: (-counts[name], name)))


def make_tables(
    types: Iterable[str], vocabulary: SquadVocabulary, glove: Mapping[str, int], vectors: Tensor
) -> Tables:
    """Return rows and characters of types; the first one stands for padding.

    A word with a trained row uses that one, even if another GloVe file knows it too.
    """
    tokens = list(types)
    trained, numbers = vocabulary.row_of, vocabulary.number_of
    length = vocabulary.word_length
    rows = numpy.full(len(tokens), UNKNOWN, dtype=numpy.int32)
    characters = numpy.full((len(tokens), length), PAD, dtype=numpy.int16)
    rows[0] = PAD
    for place, token in enumerate(tokens[1:], start=1):
        word = token.lower()
        if word in trained:
            rows[place] = trained[word]
        elif word in glove:
            rows[place] = vocabulary.rows + glove[word]
        spelled = [numbers.get(character, UNKNOWN) for character in token[:length]]
        characters[place, : len(spelled)] = spelled
    return Tables(torch.from_numpy(rows), torch.from_numpy(characters), vectors)


def tables_from(types: Iterable[str], vocabulary: SquadVocabulary, glove: Path) -> Tables:
    """Return the tables of a text for a model that exists, with vectors from a GloVe file."""
    tokens = list(types)
    found, vectors = find_vectors(glove, {token.lower() for token in tokens})
    return make_tables(tokens, vocabulary, found, vectors)
