"""Line and scatter charts, drawn by matplotlib as SVG for the page.

Every chart is drawn once, in a size that suits a phone; on a wide screen two stand side by side.
Names and legends are HTML beside the drawing, so that they wrap and never run out of it.
"""

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from thinrnn.lab.report import numbers

WIDTH, HEIGHT = 440.0, 270.0  # in CSS pixels, and in matplotlib's points
PLOT = (0.12, 0.16, 0.86, 0.8)  # left, bottom, width, height: the same in all, so that axes line up
FONT_SIZE = 12.0
MOST_POINTS = 400
STEPS = (1, 2, 5, 10)  # between two ticks, times a power of ten

# Colours of the light theme by the name of their variable in style.css, which has the dark ones.
COLOURS = {
    "soft": "#5b646f",
    "rule": "#dfe3e8",
    "grid": "#ebeef1",
    "dense": "#666e78",
    "small": "#0a5ea8",
    "control": "#c4510a",
    "c0": "#0a5ea9",
    "c1": "#c4510b",
    "c2": "#0c8456",
    "c3": "#7a2a8e",
    "c4": "#a3812a",
    "c5": "#2b2f36",
    "other": "#8a939d",
}
SERIES = ("c0", "c1", "c2", "c3", "c4", "c5")
DASHES: dict[str, str | tuple[float, tuple[float, ...]]] = {
    "solid": "solid",
    "dashed": (0, (5, 3)),
    "dotted": (0, (1.5, 2.5)),
}
MARKS = {"dense": "o", "small": "o", "control": "s"}


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]  # x rises; y is NaN where there is no value
    colour: str  # of COLOURS
    dash: str = "solid"  # of DASHES
    marked: tuple[float, float] | None = None  # a point that gets a dot

    @property
    def values(self) -> list[float]:
        """The finite values of y."""
        return [y for _, y in self.points if math.isfinite(y)]


@dataclass(frozen=True)
class Point:
    """One model in a scatter chart: its kind decides the shape of the mark."""

    kind: str
    x: float
    y: float
    colour: str


def line_chart(
    key: str, label: str, lines: Sequence[Line], *, zero: bool = False, log: bool = False
) -> Markup:
    """Returns values against epochs.

    No other chart of the page has the same key; the label is for screen readers. The y axis begins
    at zero, or is logarithmic, if chosen.
    """
    figure, axes = _axes("epoch", log)
    for line in lines:
        axes.plot(
            *zip(*line.points, strict=True),
            color=COLOURS[line.colour],
            linestyle=DASHES[line.dash],
            linewidth=1.8 if len(lines) <= 2 * len(SERIES) else 0.8,
            # A single value draws no line: it needs a mark to be seen.
            marker="o" if len(line.values) == 1 else None,
        )
        if line.marked is not None:
            axes.plot(*line.marked, "o", color=COLOURS[line.colour], markersize=6)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=STEPS))
    if zero:
        axes.set_ylim(bottom=0)
    return to_svg(figure, key, label)


def scatter_chart(
    key: str,
    label: str,
    x_title: str,
    points: Sequence[Point],
    links: Iterable[tuple[Point, Point]],
) -> Markup:
    """Returns quality against cost, one mark for each model; links join two of them."""
    figure, axes = _axes(x_title)
    for a, b in links:
        axes.plot([a.x, b.x], [a.y, b.y], color=COLOURS["rule"], linewidth=1.2, zorder=1)
    for point in points:
        axes.plot(
            point.x,
            point.y,
            MARKS.get(point.kind, "o"),
            markersize=8,
            markeredgewidth=1.8,
            color=COLOURS[point.colour],
            markerfacecolor="none" if point.kind == "dense" else COLOURS[point.colour],
        )
    axes.margins(0.1)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
    return to_svg(figure, key, label)


def spans_decades(values: Iterable[float]) -> bool:
    """Whether a logarithmic axis shows these values better than a linear one."""
    finite = [v for v in values if math.isfinite(v)]
    return bool(finite) and min(finite) > 0 and max(finite) / min(finite) > 4


def thin(length: int, most: int = MOST_POINTS) -> list[int]:
    """Returns at most `most` evenly spread indices of a series, first and last among them.

    >>> thin(5, 3)
    [0, 2, 4]
    """
    if length <= most:
        return list(range(length))
    return [round(i * (length - 1) / (most - 1)) for i in range(most)]


def to_svg(figure: Figure, key: str, label: str) -> Markup:
    """Returns a figure in COLOURS as an <svg> element with font and colours of the page."""
    file = io.StringIO()
    # Text stays text, ids depend on nothing but key and drawing; no setting of the process changes.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": key}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    drawing = file.getvalue()
    drawing = drawing[drawing.index(">", drawing.index("<svg")) + 1 :]
    drawing = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", drawing, flags=re.DOTALL)
    # Nothing refers to the ids of groups.
    drawing = re.sub(r' id="[a-z][\w.]*_\d+"', "", drawing)
    drawing = re.sub(r"font-family: [^;\"]*", "font-family: inherit", drawing)
    variables = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
    drawing = re.sub(r"#[0-9a-f]{6}\b", lambda m: variables.get(m[0], m[0]), drawing)
    width, height = (72 * inches for inches in figure.get_size_inches())
    opening = Markup('<svg viewBox="0 0 {:g} {:g}" role="img" aria-label="{}">')
    return opening.format(width, height, label) + Markup(drawing)


def _axes(x_title: str, log: bool = False) -> tuple[Figure, Axes]:
    """Returns empty axes: pale horizontal lines; the caption names the y axis."""
    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), dpi=72)
    axes = figure.add_axes(PLOT)
    axes.spines[["left", "top", "right"]].set_visible(False)
    axes.spines["bottom"].set_color(COLOURS["soft"])
    axes.grid(axis="y", color=COLOURS["grid"], linewidth=1)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, pad=6, labelsize=FONT_SIZE, labelcolor=COLOURS["soft"])
    axes.set_xlabel(x_title, fontsize=FONT_SIZE, color=COLOURS["soft"])
    if log:
        axes.set_yscale("log", nonpositive="mask")
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if log else MaxNLocator(5, steps=STEPS))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: numbers.tick(value)))
    return figure, axes
