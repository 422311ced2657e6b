"""Exact match and F1 as the official SQuAD v1.1 script counts them."""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(answer: str) -> str:
    """Return an answer in lower case, without punctuation, articles and needless blanks.

    >>> normalised("The  Cat's hat.")
    'cats hat'
    """
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(NO_PUNCTUATION)).split())


def exact(prediction: str, reference: str) -> float:
    """Return 1 if both are the same once normalised, else 0."""
    return float(normalised(prediction) == normalised(reference))


def f1(prediction: str, reference: str) -> float:
    """Return the F1 of the words that both have; nothing in common, even two empties, is 0."""
    given, wanted = normalised(prediction).split(), normalised(reference).split()
    common = sum((Counter(given) & Counter(wanted)).values())
    if not common:
        return 0.0
    precision, recall = common / len(given), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def best(score: Callable[[str, str], float], prediction: str, references: Iterable[str]) -> float:
    """Return the score with the reference that fits best."""
    return max((score(prediction, reference) for reference in references), default=0.0)


def em_and_f1(
    predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[float, float]:
    """Return both scores in per cent over all questions."""
    pairs = list(zip(predictions, references, strict=True))
    number = max(1, len(pairs))
    em = sum(best(exact, given, wanted) for given, wanted in pairs)
    overlap = sum(best(f1, given, wanted) for given, wanted in pairs)
    return 100 * em / number, 100 * overlap / number
