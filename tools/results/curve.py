"""The paper's figure: test perplexity of recurrent highway networks against their width."""

import statistics
from typing import TYPE_CHECKING

from tools.results.rows import HIGHWAY, TAUGHT_ISS, WIDTHS
from tools.results.runs import Results
from tools.results.svg import svg_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Points = list[tuple[float, float]]  # (width, test perplexity), from narrow to wide

COLOURS = {  # in the order of the legend; those of the papers are dashed
    "selection, 100 epochs": "#bc4c00",
    "scratch, 100 epochs": "#e3b341",
    "selection, with teachers, 40 epochs": "#0969da",
    "scratch, with teachers, 40 epochs": "#bf3989",
    TAUGHT_ISS: "#8250df",
    "selection, with teachers, 160 epochs": "#0a3069",
    "scratch, with teachers, 160 epochs": "#99286e",
    "dense, 120 epochs": "#1a7f37",
    "paper: ISS": "#8c959f",
    "paper: neuron selection": "#57606a",
    "paper: dense": "#24292f",
}


def lines(results: Results) -> dict[str, Points]:
    """Return the points of each line, as far as they were run; of one width, the best."""
    found: dict[str, dict[float, float]] = {}
    for row in (*HIGHWAY, *WIDTHS):
        each = ((row.paper_line, row.paper), (row.line, results.figures(row.run, row.kind)))
        for name, figures in each:
            if figures is not None:
                points = found.setdefault(name, {})
                width, test = float(figures.sizes), statistics.fmean(figures.second)
                points[width] = min(test, points.get(width, test))
    return {name: sorted(points.items()) for name, points in found.items()}


def figure(results: Results) -> "Figure":
    """Return the figure; points of group lasso beyond its upper edge are drawn there, hollow."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(8.5, 4.2), layout="constrained")
    axes = drawn.add_subplot(xlabel="neurons in the width", ylabel="test perplexity")
    found = lines(results)
    top = 1 + max(test for name, line in found.items() if name != TAUGHT_ISS for _, test in line)
    for name in (name for name in COLOURS if name in found):
        style = "--" if name.startswith("paper") else "-"
        axes.plot(
            *zip(*found[name], strict=True), style, marker="o", color=COLOURS[name], label=name
        )
        for width, test in found[name]:
            if test > top:
                edge = axes.plot(width, top, "o", zorder=3, color=COLOURS[name], clip_on=False)
                edge[0].set_markerfacecolor("white")
                axes.annotate(f"{test:.1f} ↑", (width, top), (7, -13), textcoords="offset points")
    axes.set_ylim(top=top)
    axes.grid(alpha=0.4)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return drawn


def svg(results: Results) -> str:
    """Return the figure as an SVG file."""
    return svg_of(figure(results))
