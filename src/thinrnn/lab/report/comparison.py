"""Several runs side by side: all models in one table, quality against size and against time."""

import math
from collections.abc import Sequence

from thinrnn.lab.report import numbers
from thinrnn.lab.report.charts import MARKS, Point, scatter_chart
from thinrnn.lab.report.curves import run_colour
from thinrnn.lab.report.parts import Chart, Key, Table
from thinrnn.lab.report.read import KINDS, Measure, Run, Summary, common_metric
from thinrnn.lab.report.result import RUNTIMES, control_failed, model_name, speedup, time_key


def all_models(runs: Sequence[Run]) -> list[Table]:
    """Returns all models of several runs, one a row."""
    metric, time = common_metric(runs), time_key(runs)
    head = ["", "weights", metric.name if metric else "", RUNTIMES[time], "speed-up"]
    rows = []
    for run in runs:
        dense = run.summaries.get("dense")
        for kind in KINDS:
            if kind not in run.summaries:
                continue
            model = run.summaries[kind]
            base = dense or Summary({}, {})
            rows.append(
                [
                    f"{run.name}, {model_name(run, kind)}",
                    numbers.short(model["weights"]),
                    numbers.score(model[metric.key]) if metric else "",
                    numbers.milliseconds(model[time]),
                    speedup(base, model, time),
                ]
            )
    return [Table("All models", head, rows, stacks=True)] if rows else []


def tradeoffs(runs: Sequence[Run]) -> list[Chart]:
    """Returns quality against size and against time of several runs."""
    metric, time = common_metric(runs), time_key(runs)
    if metric is None:
        return []
    costs = (
        ("weights", "weights", numbers.short),
        ("time", f"milliseconds per call, {RUNTIMES[time]}", numbers.milliseconds),
    )
    keys = {"weights": "weights", "time": time}
    charts = [
        _tradeoff(runs, metric, name, keys[name], title, write) for name, title, write in costs
    ]
    return [chart for chart in charts if chart]


def _tradeoff(
    runs: Sequence[Run],
    metric: Measure,
    name: str,
    cost: str,
    title: str,
    write: numbers.Write,
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
    keys += [Key(kind, "", "soft", {"dense": "ring"}.get(kind, _MARK[kind])) for kind in KINDS]
    head = f"{metric.name[0].upper()}{metric.name[1:]} against {name}"
    return Chart(
        f"tradeoff-{name}",
        head,
        f"{better} and left is better. Lines join a small model and its control.",
        keys,
        scatter_chart(f"tradeoff-{name}", f"{head}: {shown}.", title, [*points.values()], links),
        Table(head, ["", title, metric.name], rows),
    )


_MARK = {kind: "square" if MARKS[kind] == "s" else "dot" for kind in KINDS}
