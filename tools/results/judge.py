"""Rows against what was found: in plain words, better or worse, reached or missed."""

import itertools
from dataclasses import dataclass

from tools.results.read import Figures, Results, millions
from tools.results.rows import Row

PARTS = ("the input", "layer 1", "layer 2")  # what the sizes of a stacked LSTM are of


@dataclass(frozen=True)
class Verdict:
    """What is good and what is not about a row; both are empty while nothing was asked of it."""

    good: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join([*(f"**{text}**" for text in self.bad), *self.good]) or "reported"


def judge(row: Row, results: Results) -> Verdict | None:
    """Return the verdict on a row, or None if it was not run."""
    ours = results.figures(row.name, row.kind)
    if ours is None:
        return None
    good: list[str] = []
    bad: list[str] = []
    if row.paper is not None:
        mean, theirs = ours.mean(row.compare), row.paper.mean(row.compare)
        text, worse = compared(mean, theirs, row.whose, row.compare)
        (bad if worse else good).append(text)
        if row.most_weights is None:
            bad += heavier(ours.weights, row.paper.weights)
    missed = list(_missed(row, ours))
    bad += missed
    is_known = True
    for rival in row.rivals:
        other = results.figures(rival.name or row.name, rival.kind)
        if other is None:
            is_known &= rival.margin is None
            continue
        mean, theirs = ours.mean("test"), other.mean("test")
        text, worse = compared(mean, theirs, rival.called or f"its {rival.kind}")
        short = rival.margin is not None and theirs - mean < rival.margin
        asked = f", asked: {rival.margin:.2f}" if short and rival.margin else ""
        (bad if worse or short else good).append(text + asked)
        missed += [text] if short else []
    limits = (row.most_valid, row.most_test, row.most_weights)
    if any(limit is not None for limit in limits) and is_known and not missed:
        good.append("reached what was asked")
    return Verdict(tuple(good), tuple(bad))


def _missed(row: Row, ours: Figures) -> list[str]:
    found = []
    for part, value, limit in (
        ("valid", ours.mean("valid"), row.most_valid),
        ("test", ours.mean("test"), row.most_test),
    ):
        if limit is not None and value > limit:
            found.append(f"missed: {part} {value:.2f}, at most {limit:.2f} was asked")
    weights, most = ours.weights, row.most_weights
    if weights is not None and most is not None and weights > most:
        found.append(f"missed: {weights:,} weights, at most {millions(most)} was asked")
    return found


def compared(ours: float, other: float, whose: str, part: str = "test") -> tuple[str, bool]:
    """Return in words how our perplexity stands to another, and whether it is worse."""
    difference = ours - other
    word = "worse" if difference > 0 else "better"
    return f"{part} {abs(difference):.2f} {word} than {whose}", difference > 0


def heavier(ours: int | None, paper: int | None) -> list[str]:
    """Return that a model has more weights than the paper's, if it has, beyond rounding."""
    if ours is None or paper is None or ours <= 1.005 * paper:
        return []
    return [f"{millions(ours)} weights, the paper has {millions(paper)}"]


def trend(rows: tuple[Row, ...], results: Results) -> str:
    """Return whether weights fall and perplexity rises from row to row, in a sentence.

    A size that grows, though all weights together fall, is named.
    """
    ran = [(row, f) for row in rows if (f := results.figures(row.name, row.kind)) is not None]
    found = [figures for _, figures in ran]
    if len(found) < 2:
        return ""
    pairs = list(itertools.pairwise(found))
    falls = all((a.weights or 0) > (b.weights or 0) for a, b in pairs)
    rises = all(a.mean("test") < b.mean("test") for a, b in pairs)
    if falls and rises:
        grown = [
            f"{part} grows from {a} to {b} at {row.label}"
            for (_, before), (row, after) in itertools.pairwise(ran)
            for part, a, b in zip(PARTS, _numbers(before), _numbers(after), strict=True)
            if b > a
        ]
        said = "As in the paper, weights fall and perplexity rises from row to row"
        return f"{said}; other than there, {' and '.join(grown)}." if grown else f"{said}."
    wrong = [
        *([] if falls else ["weights do not fall"]),
        *([] if rises else ["test perplexity does not rise"]),
    ]
    return f"Other than in the paper, {' and '.join(wrong)} at every step."


def _numbers(figures: Figures) -> list[int]:
    return [int(size) for size in figures.sizes.split("-")]
