"""Machine reading in the tables: EM and F1 on SQuAD dev, of which more is better.

The rows are those of the paper's table 4; sizes are ModFwd1, ModBwd1, ModFwd2, ModBwd2, OutFwd,
OutBwd; weights are counted with biases and the tables of characters and trained words.
"""

import statistics
from dataclasses import dataclass
from typing import Any

from tools.results.judge import Verdict, heavier
from tools.results.read import Results, millions


@dataclass(frozen=True)
class Scores:
    """EM and F1 of one model, a value per seed."""

    em: tuple[float, ...]
    f1: tuple[float, ...]
    sizes: str
    weights: int

    def __str__(self) -> str:
        return ", ".join(_spread(values) for values in (self.em, self.f1))


@dataclass(frozen=True)
class ReadingRow:
    """One model of ours beside the paper's; the limits are what was asked of ours."""

    label: str
    name: str  # of the run in results/
    kind: str  # which of its models: dense, small or control
    paper: Scores | None = None
    least: tuple[float, float] | None = None  # EM and F1
    most_weights: int | None = None
    beats: str | None = None  # the kind of model in the same run that must be worse


def _paper(em: float, f1: float, sizes: str, weights: int) -> Scores:
    return Scores((em,), (f1,), sizes, weights)


READING = (
    ReadingRow(
        "BiDAF, dense",
        "squad-dense",
        "dense",
        _paper(67.98, 77.85, "100-100-100-100-100-100", 2_690_000),
        least=(66.98, 76.85),
    ),
    ReadingRow(
        "BiDAF, ISS (group lasso)",
        "squad-iss",
        "small",
        _paper(65.36, 75.78, "20-33-40-38-31-16", 950_000),
    ),
    ReadingRow(
        "BiDAF, neuron selection",
        "squad-paper",
        "small",
        _paper(65.67, 75.69, "26-33-36-36-33-15", 960_000),
        least=(66.0, 76.0),
        most_weights=960_000,
        beats="control",
    ),
    ReadingRow("BiDAF, the same shape from scratch", "squad-paper", "control"),
    ReadingRow("BiDAF, the paper's sizes from scratch", "squad-scratch", "dense"),
    ReadingRow(
        "BiDAF, thin: our best recipe",
        "squad-thin",
        "small",
        least=(67.0, 77.0),
        most_weights=1_200_000,
        beats="control",
    ),
    ReadingRow("BiDAF, thin, the same shape from scratch", "squad-thin", "control"),
    ReadingRow("BiDAF, fast: the encoder pruned too", "squad-fast", "small", beats="control"),
    ReadingRow("BiDAF, fast, the same shape from scratch", "squad-fast", "control"),
)

HEAD = (
    *("model", "paper: EM, F1", "sizes", "weights"),
    *("ours: EM, F1", "sizes", "weights", "verdict"),
)
SHORT_HEAD = ("SQuAD", "paper: EM, F1", "weights", "ours: EM, F1", "weights")


def scores(results: Results, name: str, kind: str) -> Scores | None:
    """Return what the model of a kind reached over all seeds, or None if it was not run."""
    found = [run["models"][kind] for run in results.seeds(name) if kind in run["models"]]
    if not found:
        return None
    return Scores(
        tuple(model["em"] for model in found),
        tuple(model["f1"] for model in found),
        _sizes(found[0]),
        max(model["weights"] for model in found),
    )


def judged(row: ReadingRow, results: Results) -> Verdict | None:
    """Return the verdict on a row, or None if it was not run."""
    ours = scores(results, row.name, row.kind)
    if ours is None:
        return None
    good: list[str] = []
    bad: list[str] = []
    other = None if row.beats is None else scores(results, row.name, row.beats)
    for theirs, whose in ((row.paper, "the paper"), (other, f"its {row.beats}")):
        if theirs is not None:
            text, worse = _compared(ours, theirs, whose)
            (bad if worse else good).append(text)
    if row.paper is not None and row.most_weights is None:
        bad += heavier(ours.weights, row.paper.weights)
    missed = list(_missed(row, ours))
    asked = row.least is not None or row.most_weights is not None
    if asked and not missed:
        good.append("reached what was asked")
    return Verdict(tuple(good), tuple(bad + missed))


def lines(results: Results) -> list[list[str]]:
    """Return the cells of all rows."""
    found = []
    for row in READING:
        ours, verdict = scores(results, row.name, row.kind), judged(row, results)
        said = "not yet run" if verdict is None else str(verdict)
        found.append([row.label, *_cells(row.paper), *_cells(ours), said])
    return found


def short_lines(results: Results) -> list[list[str]]:
    """Return the cells of the rows that were run, without sizes and verdicts."""
    found = []
    for row in READING:
        ours = scores(results, row.name, row.kind)
        if ours is not None:
            paper, _, weights = _cells(row.paper)
            found.append([row.label, paper, weights, str(ours), millions(ours.weights)])
    return found


def _missed(row: ReadingRow, ours: Scores) -> list[str]:
    found = []
    for name, value, limit in zip(("EM", "F1"), _means(ours), row.least or (0.0, 0.0), strict=True):
        if value < limit:
            found.append(f"missed: {name} {value:.2f}, at least {limit:.2f} was asked")
    if row.most_weights is not None and ours.weights > row.most_weights:
        most = millions(row.most_weights)
        found.append(f"missed: {ours.weights:,} weights, at most {most} was asked")
    return found


def _compared(ours: Scores, theirs: Scores, whose: str) -> tuple[str, bool]:
    """Return in words how our F1 stands to another, and whether it is worse."""
    difference = _means(ours)[1] - _means(theirs)[1]
    word = "worse" if difference < 0 else "better"
    return f"F1 {abs(difference):.2f} {word} than {whose}", difference < 0


def _sizes(model: dict[str, Any]) -> str:
    """Return the sizes in the paper's order, those of the encoder, which it leaves, at the end."""
    ordered = sorted(model["neurons"].items(), key=lambda item: item[0].startswith("encoder"))
    return "-".join(str(size) for _, size in ordered)


def _means(given: Scores) -> tuple[float, float]:
    return statistics.fmean(given.em), statistics.fmean(given.f1)


def _cells(given: Scores | None) -> list[str]:
    return ["-", "-", "-"] if given is None else [str(given), given.sizes, millions(given.weights)]


def _spread(values: tuple[float, ...]) -> str:
    mean = f"{statistics.fmean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.2f}"
