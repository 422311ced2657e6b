"""Several runs side by side: all models in one table, quality against size and against time."""

import math
from collections.abc import Sequence

from thinrnn.lab.report import numbers
from thinrnn.lab.report.charts import Point, scatter_chart
from thinrnn.lab.report.curves import run_colour
from thinrnn.lab.report.parts import Chart, Key, Table
from thinrnn.lab.report.read import Measure, Run, Summary, common_metric
from thinrnn.lab.report.result import RUNTIMES, control_failed, model_name, speedup, time_key


def all_models(runs: Sequence[Run]) -> list[Table]:
    """Returns all models of several runs, one a row."""
    metric, time = common_metric(runs), time_key(runs)
    head = ["", "weights", metric.name if metric else "", RUNTIMES[time], "speed-up"]
    rows = [
        [
            f"{run.name}, {model_name(run, kind)}",
            numbers.short(model["weights"]),
            numbers.score(model[metric.key]) if metric else "",
            numbers.milliseconds(model[time]),
            speedup(run.summaries.get("dense", Summary({}, {})), model, time),
        ]
        for run in runs
        for kind, model in run.models.items()
    ]
    return [Table("All models", head, rows, stacks=True)] if rows else []


def tradeoffs(runs: Sequence[Run]) -> list[Chart]:
    """Returns quality against size and against time of several runs."""
    metric, time = common_metric(runs), time_key(runs)
    if metric is None:
        return []
    per_call = f"milliseconds per call, {RUNTIMES[time]}"
    charts = (
        _tradeoff(runs, metric, "weights", "weights", "weights", numbers.short),
        _tradeoff(runs, metric, "time", time, per_call, numbers.milliseconds),
    )
    return [chart for chart in charts if chart]


def _tradeoff(
    runs: Sequence[Run], metric: Measure, name: str, cost: str, title: str, write: numbers.Write
) -> Chart | None:
    points = {
        (i, kind): Point(kind, model[cost], model[metric.key], run_colour(i))
        for i, run in enumerate(runs)
        for kind, model in run.summaries.items()
        if math.isfinite(model[cost]) and math.isfinite(model[metric.key])
    }
    if not points:
        return None
    links = [
        (points[i, "small"], points[i, "control"])
        for i in range(len(runs))
        if (i, "small") in points and (i, "control") in points and not control_failed(runs[i])
    ]
    rows = [
        [f"{runs[i].name}, {model_name(runs[i], kind)}", write(point.x), numbers.score(point.y)]
        for (i, kind), point in points.items()
    ]
    shown = ", ".join(" ".join(row) for row in rows)
    better = "Down" if metric.lower_is_better else "Up"
    keys = [Key(run.name, "", run_colour(i), "solid") for i, run in enumerate(runs)]
    marks = {"dense": "ring", "small": "dot", "control": "square"}  # as in the drawing
    keys += [Key(kind, "", "soft", mark) for kind, mark in marks.items()]
    head = f"{metric.title} against {name}"
    return Chart(
        f"tradeoff-{name}",
        head,
        f"{better} and left is better. Lines join a small model and its control.",
        keys,
        scatter_chart(f"tradeoff-{name}", f"{head}: {shown}.", title, [*points.values()], links),
        Table(head, ["", title, metric.name], rows),
    )
