"""A 5-gram model with interpolated, modified Kneser-Ney smoothing: what a language model must beat.

With c(v w) the count of an n-gram that ends with w after the words v, and v' being v without its
first word:

    p(w | v) = (c(v w) - D(c(v w)))+ / c(v .)  +  g(v) p(w | v')

    g(v) = (D1 N1(v) + D2 N2(v) + D3 N3+(v)) / c(v .)     what the discounts took from v

N1(v) is how many words follow v once; below the highest order c counts the different words before
an n-gram, not its occurrences. The lowest order is uniform. Discounts are those of Chen and
Goodman (1999).

Every n-gram of the training text has a number: the place of (number of its first n-1 words, last
word) among all such pairs, sorted. So all is done on whole arrays.
"""

import math
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

Ints = NDArray[numpy.int64]
Floats = NDArray[numpy.float64]
ORDER = 5
UNSEEN = -1  # the number of an n-gram that the training text has not


@dataclass(frozen=True)
class Level:
    """All n-grams of one length: keys sorted, and what each one passes on to p(w | v)."""

    keys: Ints  # context * words + word
    direct: Floats  # (c - D(c)) / c(v .), of each n-gram
    backoff: Floats  # g(v), of each context

    def numbers(self, contexts: Ints, words: Ints, vocabulary: int) -> Ints:
        """Return the number of each n-gram, UNSEEN where there is none."""
        wanted = numpy.where(contexts == UNSEEN, UNSEEN, contexts * vocabulary + words)
        places = numpy.searchsorted(self.keys, wanted).clip(max=len(self.keys) - 1)
        return numpy.where(self.keys[places] == wanted, places, UNSEEN)


class KneserNey:
    """The n-gram model of a text.

    Args:
        text: Its tokens as numbers (N,).
        vocabulary: How many tokens there are; all of them get a probability.
        order: The longest n-gram.

    >>> model = KneserNey(numpy.array([1, 2, 1, 2, 0]), 3, order=2)
    >>> bool(model.perplexity(numpy.array([1, 2])) < 3)
    True
    """

    def __init__(self, text: Ints, vocabulary: int, order: int = ORDER) -> None:
        text = numpy.asarray(text, dtype=numpy.int64)
        self.vocabulary = vocabulary
        grams = numbered(text, vocabulary, min(order, len(text)))
        self.levels = [
            level(keys, counts_of(grams, n), vocabulary) for n, (keys, _) in enumerate(grams)
        ]

    def perplexity(self, text: Ints) -> float:
        """Return exp of the mean surprise at the words of another text, its first included."""
        return math.exp(-float(numpy.log(self.probabilities(text)).mean()))

    def probabilities(self, text: Ints) -> Floats:
        """Return the probability of each word after those before it."""
        text = numpy.asarray(text, dtype=numpy.int64)
        p = numpy.full(len(text), 1 / self.vocabulary)
        for n, level in enumerate(self.levels):  # n words before
            contexts = self._contexts(text, n)
            known = contexts != UNSEEN
            numbers = level.numbers(contexts, text, self.vocabulary)
            direct = numpy.where(numbers == UNSEEN, 0.0, level.direct[numbers])
            p = numpy.where(known, direct + level.backoff[contexts] * p, p)
        return p

    def _contexts(self, text: Ints, n: int) -> Ints:
        """Return the number of the n words before each word, UNSEEN where there are fewer."""
        found = numpy.zeros(len(text), dtype=numpy.int64)
        for k, level in enumerate(self.levels[:n]):
            before = numpy.full(len(text), UNSEEN)
            before[n - k :] = text[: len(text) - n + k]
            found = numpy.where(before == UNSEEN, UNSEEN, found)
            found = level.numbers(found, before, self.vocabulary)
        return found


def numbered(text: Ints, vocabulary: int, order: int) -> list[tuple[Ints, Ints]]:
    """Return for each length the keys of all n-grams, sorted, and the number of each occurrence."""
    found = []
    contexts = numpy.zeros(len(text), dtype=numpy.int64)
    for n in range(order):
        keys, numbers = numpy.unique(contexts * vocabulary + text[n:], return_inverse=True)
        found.append((keys, numbers))
        contexts = numbers[:-1]
    return found


def counts_of(grams: list[tuple[Ints, Ints]], n: int) -> Ints:
    """Return the count of each n-gram: occurrences of the longest, else words before it."""
    keys, numbers = grams[n]
    if n + 1 == len(grams):
        return numpy.bincount(numbers, minlength=len(keys))
    longer, places = grams[n + 1]
    suffix = numpy.empty(len(longer), dtype=numpy.int64)
    suffix[places] = numbers[1:]  # the n-gram without its first word
    counts = numpy.bincount(suffix, minlength=len(keys))
    return numpy.maximum(counts, 1)  # the text begins with it, and nothing else has it


def level(keys: Ints, counts: Ints, vocabulary: int) -> Level:
    """Return what the n-grams of one length pass on."""
    contexts = keys // vocabulary
    discounts = discounts_of(counts)[counts.clip(max=3)]
    totals = numpy.bincount(contexts, weights=counts)
    taken = numpy.bincount(contexts, weights=discounts)
    totals[totals == 0] = 1.0  # a context at the end of the text: nothing follows it
    backoff = taken / totals
    backoff[taken == 0] = 1.0
    return Level(keys, (counts - discounts) / totals[contexts], backoff)


def discounts_of(counts: Ints) -> Floats:
    """Return D(0), D(1), D(2) and D(3 and more)."""
    n1, n2, n3, n4 = (int((counts == k).sum()) for k in (1, 2, 3, 4))
    if not n1 or not n2:
        return numpy.array([0.0, 0.5, 0.5, 0.5])
    y = n1 / (n1 + 2 * n2)
    more = [2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3 if n3 else 1.0]
    # Where counts of counts are small they may leave nothing, or more than there is.
    return numpy.array([0.0, *numpy.clip([1 - 2 * y * n2 / n1, *more], 0.1, [0.95, 1.9, 2.9])])
