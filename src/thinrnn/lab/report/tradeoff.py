"""Several runs side by side: quality against size and against time."""

from collections.abc import Callable, Mapping, Sequence

from thinrnn.lab.report import numbers
from thinrnn.lab.report.headline import quality
from thinrnn.lab.report.page import NARROW, WIDE, both, figure, section, table
from thinrnn.lab.report.read import KINDS, Run, Summary
from thinrnn.lab.report.scatter import Point, ScatterChart, draw_scatter, finite


def tradeoff(runs: Sequence[Run]) -> str:
    """Returns the trade-off charts of two or more runs."""
    if len(runs) < 2:
        return ""
    models = {(run.name, kind): m for run in runs for kind, m in run.summaries.items()}
    name, measure = quality({" ".join(key): model for key, model in models.items()})
    parts = []
    for kind, title, x_title, cost, write in (
        ("weights", "Quality against size.", "weights", lambda m: m.weights, numbers.short),
        (
            "time",
            "Quality against time.",
            "milliseconds per call",
            lambda m: m.milliseconds,
            numbers.milliseconds,
        ),
    ):
        points = _points(runs, cost, measure)
        if points:
            parts.append(_figure(runs, points, f"tradeoff-{kind}", title, x_title, name, write))
    return section("tradeoff", "Trade-off", *parts)


Cost = Callable[[Summary], float]


def _points(runs: Sequence[Run], cost: Cost, measure: Cost) -> dict[tuple[str, str], Point]:
    """Returns the points that can be drawn, by run name and kind."""
    points = {}
    for run in runs:
        for kind in KINDS:
            if kind in run.summaries:
                model = run.summaries[kind]
                point = Point(f"{run.name} {kind}", kind, cost(model), measure(model))
                if finite(point):
                    points[run.name, kind] = point
    return points


def _figure(
    runs: Sequence[Run],
    points: Mapping[tuple[str, str], Point],
    kind: str,
    title: str,
    x_title: str,
    y_title: str,
    write: Callable[[float], str],
) -> str:
    links = [
        (points[run.name, "small"], points[run.name, "control"])
        for run in runs
        if (run.name, "small") in points and (run.name, "control") in points
    ]
    chart = ScatterChart(
        kind,
        f"{y_title} against {x_title} of {len(runs)} runs: "
        + ", ".join(f"{p.name} {numbers.perplexity(p.y)} at {write(p.x)}" for p in points.values()),
        x_title,
        y_title,
        _merged(points, len(runs)),
        links,
        write,
    )
    rows = [[run, kind, numbers.perplexity(p.y), write(p.x)] for (run, kind), p in points.items()]
    key = "".join(
        f'<span class="key"><i class="sign {style}"></i> {style}</span>' for style in KINDS
    )
    drawn = key + both(draw_scatter(chart, *WIDE), draw_scatter(chart, *NARROW))
    note = f"{'Up' if y_title == 'F1' else 'Down'} and left is better; "
    note += "a line joins a small model to its control, "
    note += "the same shape trained from scratch."
    numbers_table = table(["run", "model", y_title, x_title], rows, caption=title.rstrip("."))
    return figure(title, note, drawn, numbers_table)


def _merged(points: Mapping[tuple[str, str], Point], runs: int) -> list[Point]:
    """Runs often share one dense model: points in the same place become one with all names."""
    places: dict[tuple[str, float, float], list[str]] = {}
    for (run, kind), point in points.items():
        places.setdefault((kind, point.x, point.y), []).append(run)
    return [
        Point(
            f"{kind}, all runs" if len(names) == runs else f"{', '.join(names)} {kind}",
            kind,
            x,
            y,
        )
        for (kind, x, y), names in places.items()
    ]
