"""Scatter charts: quality against cost, one labelled point per model."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from thinrnn.lab.report import numbers
from thinrnn.lab.report.scale import Scale, fit, spans_decades
from thinrnn.lab.report.svg import LINE, axes, chart, clip, line, tag, text, text_width, tick_room

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Point:
    """One model: its place, the short name drawn beside it, and its kind as a style."""

    name: str
    style: str
    x: float
    y: float


@dataclass(frozen=True)
class ScatterChart:
    """All that a scatter chart shows, free of any size."""

    kind: str
    label: str
    x_title: str
    y_title: str
    points: Sequence[Point]
    links: Sequence[tuple[Point, Point]]
    x_value: Callable[[float], str]


def draw_scatter(plan: ScatterChart, width: float, height: float) -> str:
    """Returns the chart drawn for the given size; points and links have finite values."""
    ys = [p.y for p in plan.points]
    xs = [p.x for p in plan.points]
    y = fit(ys, height - 46, 30, log=spans_decades(ys), air=0.12)
    x = fit(xs, tick_room(y), width - 12, log=spans_decades(xs), air=0.1)
    parts = [
        axes(
            x,
            y,
            x_title=plan.x_title,
            y_title=plan.y_title,
            x_most=max(2, int((x.end - x.start) / 80)),
        )
    ]
    parts += [line(x(a.x), y(a.y), x(b.x), y(b.y), "link") for a, b in plan.links]
    parts += [_mark(p.style, x(p.x), y(p.y)) for p in plan.points]
    parts += _labels(plan.points, x, y)
    points = [
        {
            "x": x(p.x),
            "y": y(p.y),
            "title": p.name,
            "rows": [[plan.y_title, numbers.perplexity(p.y)], [plan.x_title, plan.x_value(p.x)]],
            "style": p.style,
        }
        for p in plan.points
    ]
    hover = {"kind": "points", "points": points}
    return chart("".join(parts), width, height, label=plan.label, kind=plan.kind, hover=hover)


def _mark(style: str, x: float, y: float) -> str:
    """Kinds differ in shape as well as in colour."""
    if style == "dense":
        return tag("circle", cx=x, cy=y, r=5.0, class_="mark hollow dense")
    if style == "control":
        return tag("rect", x=x - 4.5, y=y - 4.5, width=9.0, height=9.0, class_="mark control")
    return tag("circle", cx=x, cy=y, r=5.5, class_=f"mark {style}")


def _labels(points: Sequence[Point], x: Scale, y: Scale) -> list[str]:
    """Puts each name where it covers no point and no other name, as far as there is room."""
    taken: list[Box] = [(x(p.x) - 6, y(p.y) - 6, x(p.x) + 6, y(p.y) + 6) for p in points]
    parts = []
    for point in points:
        px, py = x(point.x), y(point.y)
        name = clip(point.name, (x.end - x.start) / 2.5)
        places = _places(px, py, text_width(name), x, y)
        box = min(places, key=lambda box: sum(_overlap(box, other) for other in taken))
        taken.append(box)
        middle = (box[1] + box[3]) / 2
        # A name that had to go further away is tied to its point.
        if abs(middle - py) > LINE:
            parts.append(line(px, py, min(max(px, box[0]), box[2]), middle, "leader"))
        # The text may be narrower than its box, so it starts from the side near the point.
        near, anchor = (box[2], "end") if box[2] <= px else (box[0], "start")
        parts.append(text(near, box[3] - 4, name, f"end {point.style}", anchor))
    return parts


def _places(px: float, py: float, width: float, x: Scale, y: Scale) -> list[Box]:
    """Candidate boxes, the preferred first: right, left, then above and below, further out."""
    boxes = []
    for step in range(6):
        for dy in (0.0,) if step == 0 else (-LINE * step, LINE * step):
            for left in (px + 9, px - 9 - width, px - width / 2):
                if step == 0 and left == px - width / 2:
                    continue
                inside = min(max(left, x.start), x.end - width)
                top = min(max(py + dy - LINE / 2, y.end - 8), y.start - LINE)
                boxes.append((inside, top, inside + width, top + LINE))
    return boxes


def _overlap(a: Box, b: Box) -> float:
    across = min(a[2], b[2]) - max(a[0], b[0])
    down = min(a[3], b[3]) - max(a[1], b[1])
    return across * down if across > 0 and down > 0 else 0.0


def finite(point: Point) -> bool:
    """Whether the point has a place on a chart."""
    return math.isfinite(point.x) and math.isfinite(point.y)
