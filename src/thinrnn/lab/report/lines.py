"""Line charts: values against epochs, each line with its name and last value at its end."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from thinrnn.lab.report import numbers
from thinrnn.lab.report.scale import Scale, fit, spans_decades, spread
from thinrnn.lab.report.svg import LINE, axes, chart, clip, line, tag, text_width, tick_room


@dataclass(frozen=True)
class Series:
    """One line of a chart; y is NaN where there is no value."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    style: str


@dataclass(frozen=True)
class LineChart:
    """All that a line chart shows, free of any size."""

    kind: str
    label: str
    y_title: str
    series: Sequence[Series]
    x_title: str = "epoch"
    zero: bool = False
    log: bool | None = None  # None: where the values span a large range
    value: Callable[[float], str] = numbers.plain

    @property
    def is_log(self) -> bool:
        values = [v for s in self.series for v in s.y]
        return spans_decades(values) and not self.zero if self.log is None else self.log


def draw_lines(plan: LineChart, width: float, height: float) -> str:
    """Returns the chart drawn for the given size."""
    ends = [(s, end) for s in plan.series if (end := _last(s)) is not None]
    # A line that is the whole subject of its chart is named by the axis title.
    names = {s.name: clip(s.name, 0.25 * width) if s.name != plan.kind else "" for s, _ in ends}
    last_values = {s.name: plan.value(y) for s, (_, y) in ends}
    right = max((text_width(f"{names[n]} {last_values[n]}") for n in names), default=0.0) + 20

    labels = {name: (names[name], last_values[name]) for name in names}

    xs = sorted({x for s in plan.series for x in s.x if math.isfinite(x)})
    ys = [v for s in plan.series for v in s.y]
    y = fit(ys, height - 46, 30, log=plan.is_log, zero=plan.zero)
    first, last = (xs[0], xs[-1]) if xs else (0.0, 1.0)
    if first == last:
        first, last = first - 0.5, last + 0.5
    x = Scale(first, last, tick_room(y), width - right)

    parts = [
        axes(
            x,
            y,
            x_title=plan.x_title,
            y_title=plan.y_title,
            whole_x=True,
            x_most=max(4, int((x.end - x.start) / 65)),
        )
    ]
    parts += [_path(s, x, y) for s in plan.series]
    parts += _end_labels([(s, x(px), y(py)) for s, (px, py) in ends], labels, x.end, y)
    hover = {
        "kind": "lines",
        "top": y.end,
        "bottom": y.start,
        "x": [x(v) for v in xs],
        "title": [f"{plan.x_title} {numbers.plain(v) if v % 1 else numbers.count(v)}" for v in xs],
        "series": [_hover_series(s, xs, y, plan) for s in plan.series],
    }
    return chart("".join(parts), width, height, label=plan.label, kind=plan.kind, hover=hover)


def _finite(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


def _last(series: Series) -> tuple[float, float] | None:
    points = [
        (x, y)
        for x, y in zip(series.x, series.y, strict=True)
        if math.isfinite(x) and math.isfinite(y)
    ]
    return points[-1] if points else None


def _path(series: Series, x: Scale, y: Scale) -> str:
    """One path, broken where values are missing; a value with no neighbour is a dot."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for px, py in zip(series.x, series.y, strict=True):
        if math.isfinite(px) and _finite(py, y.log):
            pieces[-1].append((x(px), y(py)))
        elif pieces[-1]:
            pieces.append([])
    drawn = []
    for piece in pieces:
        if len(piece) == 1:
            drawn.append(
                tag("circle", cx=piece[0][0], cy=piece[0][1], r=3.5, class_=f"dot {series.style}")
            )
        elif piece:
            d = "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in piece)
            drawn.append(tag("path", d=d, class_=f"line {series.style}"))
    return "".join(drawn)


def _end_labels(
    ends: Sequence[tuple[Series, float, float]],
    labels: Mapping[str, tuple[str, str]],
    right: float,
    y: Scale,
) -> list[str]:
    """Names at the right, moved apart where lines end close together.

    Where there are more lines than names fit, those are named that need no moving.
    """
    ends = sorted(ends, key=lambda end: end[2])
    if len(ends) > (y.start - y.end) / LINE:
        apart = ends[:1]
        for end in ends[1:]:
            if end[2] >= apart[-1][2] + LINE:
                apart.append(end)
        ends = apart
    places = spread([end[2] for end in ends], LINE, y.end, y.start)
    parts = []
    for (series, px, py), place in zip(ends, places, strict=True):
        if abs(place - py) > 3 or px < right - 1:
            parts.append(line(px + 3, py, right + 9, place, f"leader {series.style}"))
        name, value = labels[series.name]
        content = (tag("tspan", escape(name), class_="strong") + " " if name else "") + escape(
            value
        )
        parts.append(tag("text", content, x=right + 12, y=place + 4, class_=f"end {series.style}"))
    return parts


def _hover_series(
    series: Series, xs: Sequence[float], y: Scale, plan: LineChart
) -> dict[str, object]:
    known = dict(zip(series.x, series.y, strict=True))
    values = [known.get(v, math.nan) for v in xs]
    return {
        "name": series.name,
        "style": series.style,
        "y": [y(v) if _finite(v, y.log) else None for v in values],
        "text": [plan.value(v) for v in values],
    }
