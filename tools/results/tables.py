"""Tables in Markdown: rows of ours beside the paper's."""

import statistics
from collections.abc import Sequence

from tools.results.rows import HEADLINES, ROWS, Row
from tools.results.runs import Figures, Results, millions, place, spread

PERPLEXITY, READING = "valid, test", "EM, F1"
NAMES = {PERPLEXITY: ("valid", "test"), READING: ("EM", "F1")}
HEAVIER = 1.005  # weights above this times the paper's are more than rounding


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


def paper_table(
    rows: Sequence[Row],
    results: Results,
    scores: str = PERPLEXITY,
    *,
    whose: str = "paper",
    folder: str = "",
) -> str:
    """Return rows beside the paper's, with the difference; bold is what is worse than there.

    With the folder of the results, as seen from the page, rows link to their files.
    """
    head = ("model", "how", f"{whose}: {scores}", f"ours: {scores}", "difference")
    more = (f"weights: {whose}", "ours", f"sizes: {whose}", "ours")
    return markdown([*head, *more], [_line(row, results, scores, folder) for row in rows])


def own_table(
    rows: Sequence[Row], results: Results, scores: str = PERPLEXITY, *, folder: str = ""
) -> str:
    """Return rows that the paper does not have."""
    lines = []
    for row in rows:
        ours = results.figures(row.run, row.kind)
        cells = _cells(ours) if ours else ["not run yet", "-", "-"]
        lines.append([_label(row, folder), ours.how if ours else "-", *cells])
    return markdown(("model", "how", scores, "weights", "sizes"), lines)


def headline_table(results: Results) -> str:
    """Return the README's table: each experiment of the paper in one line."""
    head = ("test score", *(f"paper: {model}" for model in ("dense", "ISS", "selection")))
    more = (f"ours: {model}" for model in ("dense", "selection", "from scratch"))
    lines = []
    for row in HEADLINES:
        theirs = ROWS[row.selection, "small"].paper
        ours = results.figures(row.selection)
        others = (
            ROWS[row.paper_dense, "dense"].paper,
            ROWS[row.iss, "small"].paper,
            theirs,
            results.figures(row.dense, "dense"),
            ours,
            results.figures(row.scratch, "control"),
        )
        scores = ["-" if one is None else spread(one.second) for one in others]
        weights = [millions(one.weights) if one else "-" for one in (theirs, ours)]
        lines.append([row.label, *scores, ", ".join(weights), ours.how if ours else "-"])
    return markdown([*head, *more, "weights: paper, ours", "how"], lines)


def _line(row: Row, results: Results, scores: str, folder: str) -> list[str]:
    ours, paper = results.figures(row.run, row.kind), row.paper
    theirs, found = ([] if one is None else _cells(one) for one in (paper, ours))
    pairs = zip(theirs or "---", found or ["not run yet", "-", "-"], strict=True)
    score, weights, sizes = ([*pair] for pair in pairs)
    if ours and paper and ours.weights > HEAVIER * paper.weights:
        weights[1] = f"**{weights[1]}**"
    how = ours.how if ours else "-"
    return [_label(row, folder), how, *score, difference(row, ours, scores), *weights, *sizes]


def _label(row: Row, folder: str) -> str:
    return f"[{row.label}]({folder}/{place(row.run)}.json)" if folder else row.label


def difference(row: Row, ours: Figures | None, scores: str = PERPLEXITY) -> str:
    """Return our second score minus the paper's, in bold if ours is worse."""
    if ours is None or row.paper is None:
        return "-"
    means = (statistics.fmean(getattr(one, row.compare)) for one in (ours, row.paper))
    found = next(means) - next(means)
    shown = f"{found:+.2f}" if row.compare == "second" else f"{found:+.2f} ({NAMES[scores][0]})"
    worse = found > 0 if scores == PERPLEXITY else found < 0
    return f"**{shown}**" if worse else shown


def _cells(figures: Figures) -> list[str]:
    return [str(figures), millions(figures.weights), figures.sizes]
