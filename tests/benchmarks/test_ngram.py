"""The 5-gram model is the one of the equations, computed slowly here, word by word."""

import math
from collections import Counter

import numpy
import pytest

from benchmarks.ngram import KneserNey, discounts_of


def slow_probability(text, vocabulary, order, context, word):
    """p(word | context) by recursion over dictionaries."""
    n = len(context)
    grams = Counter(tuple(text[i : i + n + 1]) for i in range(len(text) - n))
    if n + 1 < order:
        longer = {tuple(text[i : i + n + 2]) for i in range(len(text) - n - 1)}
        before = Counter(gram[1:] for gram in longer)
        grams = Counter({gram: max(1, before[gram]) for gram in grams})
    discounts = discounts_of(numpy.array(list(grams.values())))
    following = {gram: count for gram, count in grams.items() if gram[:-1] == context}
    shorter = slow_probability(text, vocabulary, order, context[1:], word) if n else 1 / vocabulary
    if not following:
        return shorter
    total = sum(following.values())
    taken = sum(discounts[min(count, 3)] for count in following.values())
    count = following.get((*context, word), 0)
    direct = (count - discounts[min(count, 3)]) / total if count else 0.0
    return direct + taken / total * shorter


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_it_is_what_the_equations_say(order):
    draw = numpy.random.default_rng(order)
    text = draw.zipf(1.6, 300).clip(max=12) - 1  # 12 words, some of them rare
    other = draw.zipf(1.6, 40).clip(max=13) - 1
    model = KneserNey(text, 13, order=order)
    fast = model.probabilities(other)
    for i, word in enumerate(other):
        context = tuple(other[max(0, i - order + 1) : i])
        slow = slow_probability(list(text), 13, order, context, word)
        assert fast[i] == pytest.approx(slow, rel=1e-12), i


def test_probabilities_of_all_words_sum_to_one():
    text = numpy.random.default_rng(0).integers(0, 6, 200)
    model = KneserNey(text, 8)
    for context in ([], [1], [7], [0, 1, 2], [3, 3, 3, 3]):
        total = sum(model.probabilities(numpy.array([*context, word]))[-1] for word in range(8))
        assert total == pytest.approx(1, rel=1e-12), context


def test_a_text_that_repeats_itself_is_predicted():
    text = numpy.tile(numpy.arange(10), 30)
    assert KneserNey(text, 10).perplexity(text[:50]) < 1.3
    assert KneserNey(text, 10, order=1).perplexity(text) == pytest.approx(10, rel=0.01)
    assert math.isfinite(KneserNey(numpy.array([0, 1]), 3).perplexity(numpy.array([2, 2])))
