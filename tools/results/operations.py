"""Mult-adds a token of the paper's stacked LSTMs and of ours: layers and output, no embedding."""

from tools.results.markdown import markdown
from tools.results.read import Results, millions
from tools.results.rows import LSTM

WORDS = 10_000  # rows of the output layer


def mult_adds(sizes: str) -> int:
    """Return the mult-adds a token of an untied LSTM with two layers, as in 251-296-247."""
    inputs, first, second = map(int, sizes.split("-"))
    return 4 * first * (inputs + first) + 4 * second * (first + second) + WORDS * second


DENSE = mult_adds("1500-1500-1500")


def section(results: Results) -> str:
    """Return the rows that the paper has as well, beside ours; nothing if none was run."""
    lines = [
        [label, millions(paper), f"{DENSE / paper:.1f}x", millions(ours), f"{DENSE / ours:.1f}x"]
        for label, paper, ours in _rows(results)
    ]
    if not lines:
        return ""
    about = (
        "Mult-adds a token of layers and output layer, as the paper counts them, and how many "
        f"times fewer than the {millions(DENSE)} of the dense model:"
    )
    head = ("model", "paper: mult-adds", "fewer", "ours: mult-adds", "fewer")
    return f"{about}\n\n{markdown(head, lines)}"


def worse(results: Results) -> list[str]:
    """Return a line for each model that takes more mult-adds than the paper's."""
    return [
        f"- {label}: {millions(ours)} mult-adds a token, {100 * (ours / paper - 1):.0f} % more "
        "than the paper."
        for label, paper, ours in _rows(results)
        if ours > paper
    ]


def _rows(results: Results) -> list[tuple[str, int, int]]:
    """Return label, the paper's mult-adds and ours, the largest number over all seeds."""
    found = []
    for row in LSTM:
        models = [run["models"].get(row.kind, {}) for run in results.seeds(row.name)]
        ours = [model["macs"] for model in models if "macs" in model]
        if row.paper is not None and ours:
            found.append((row.label, mult_adds(row.paper.sizes), max(ours)))
    return found
