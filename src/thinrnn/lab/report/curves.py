"""How training went: quality, neurons kept, parameters and penalty against epochs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from thinrnn.lab.report import numbers
from thinrnn.lab.report.charts import MOST_POINTS, SERIES, Line, line_chart, spans_decades, thin
from thinrnn.lab.report.parts import Chart, Key, Picture, Table
from thinrnn.lab.report.pictures import gate_picture
from thinrnn.lab.report.read import PHASES, Measure, Run

PHASE_COLOURS = {"dense": "dense", "gated": "small", "control": "control"}
PHASE_DASHES = {"dense": "dotted", "gated": "solid", "control": "dashed"}


def run_charts(run: Run) -> list[Chart]:
    """Returns the charts of one run, as far as there is something to show."""
    charts = [metric_chart([run], metric) for metric in run.metrics]
    charts += [_kept_chart(run), params_chart([run]), _penalty_chart(run)]
    return [chart for chart in charts if chart]


def run_colour(index: int) -> str:
    """Returns the colour of a run among several; those beyond the palette share one."""
    return SERIES[index] if index < len(SERIES) else "other"


def metric_chart(runs: Sequence[Run], metric: Measure) -> Chart | None:
    """Returns a metric of all phases against epochs, the best value of each marked."""
    lines, unsized = [], []
    for i, run in enumerate(runs):
        for phase in PHASES:
            points = run.points(phase, metric.key)
            best = metric.best(run.at_size(phase))
            name = phase if len(runs) == 1 else f"{run.name}, {phase}"
            if points and not run.at_size(phase):
                unsized.append("The gated model" if len(runs) == 1 else name)
            colour = PHASE_COLOURS[phase] if len(runs) == 1 else run_colour(i)
            marked = (float(best.epoch), best[metric.key]) if best else None
            lines.append(Line(name, points, colour, PHASE_DASHES[phase], marked))
    notes = ["Dots mark the best epoch; of the gated model, the best at its final size."]
    notes += [f"{name} has not reached its size yet." for name in unsized]
    key = metric.key.replace("_", "-")
    log = metric.lower_is_better and spans_decades(y for line in lines for y in line.values)
    return _chart(key, metric.title, lines, notes, write=numbers.score, log=log)


def params_chart(runs: Sequence[Run]) -> Chart | None:
    """Returns the parameters that are left against epochs, and where they should end."""
    lines = []
    for i, run in enumerate(runs):
        left = [point for point in run.points("gated", "params") if math.isfinite(point[1])]
        if len(runs) > 1:
            lines.append(Line(run.name, left, run_colour(i)))
        elif left:
            lines.append(Line("left", left, "small"))
            lines.append(Line("target", run.points("gated", "target"), "dense", "dotted"))
    return _chart("params", "Parameters left", lines, [], write=numbers.short, zero=True)


def gate_pictures(run: Run) -> list[Picture]:
    """Returns the gate values of every group over time."""
    epochs = run.phase("gated")
    pictures = []
    for group in dict.fromkeys(group for epoch in epochs for group in epoch.values):
        bins = next(len(e.values[group]) for e in reversed(epochs) if group in e.values)
        there = [e for e in epochs if bins and len(e.values.get(group, ())) == bins]
        if not there:
            continue
        shown = [there[i] for i in thin(len(there))]
        last = there[-1]
        kept = last.kept.get(group, math.nan)
        note = f"{numbers.count(kept)} of {numbers.count(last.sizes.get(group, bins))} kept"
        source = gate_picture([e.values[group] for e in shown])
        pictures.append(Picture(group, note, source, shown[0].epoch, last.epoch))
    return pictures


def _kept_chart(run: Run) -> Chart | None:
    epochs = run.phase("gated")
    groups = list(dict.fromkeys(group for epoch in epochs for group in epoch.kept))
    if not groups:
        return None
    kept_at: dict[float, Mapping[str, int]] = {float(e.epoch): e.kept for e in epochs}
    if epochs[0].epoch == 1:
        kept_at = {0.0: epochs[0].sizes} | kept_at  # before training all neurons are there
    lines = [
        Line(
            group,
            [(epoch, float(kept.get(group, math.nan))) for epoch, kept in kept_at.items()],
            SERIES[i % len(SERIES)] if len(groups) <= 2 * len(SERIES) else "small",
            "dashed" if len(SERIES) <= i < 2 * len(SERIES) else "solid",
        )
        for i, group in enumerate(groups)
    ]
    kept, size = sum(epochs[-1].kept.values()), sum(epochs[-1].sizes.values())
    share = numbers.percent(numbers.ratio(kept, size))
    note = f"{numbers.count(kept)} of {numbers.count(size)} are left ({share})."
    return _chart("kept", "Neurons kept", lines, [note], write=numbers.count, zero=True)


def _penalty_chart(run: Run) -> Chart | None:
    line = Line("penalty", run.points("gated", "penalty"), "small")
    # A target closes gates by itself and adds nothing to the loss.
    if not any(line.values):
        return None
    notes, log = ["What the open gates add to the loss."], spans_decades(line.values)
    return _chart("penalty", "Penalty", [line], notes, write=numbers.short, log=log)


def _chart(
    key: str,
    title: str,
    lines: Sequence[Line],
    notes: Sequence[str],
    *,
    write: numbers.Write,
    zero: bool = False,
    log: bool = False,
) -> Chart | None:
    """Returns the chart of all lines that have a value, None if there is none."""
    lines = [
        replace(line, points=[line.points[i] for i in thin(len(line.points))])
        for line in lines
        if line.values
    ]
    missing = sum(len(line.points) - len(line.values) for line in lines)
    if not lines:
        return None
    notes = [*notes]
    if log:
        notes.append("The axis is logarithmic.")
    if max(len(line.points) for line in lines) == MOST_POINTS:
        notes.append(f"{MOST_POINTS} points of each line are shown.")
    if missing:
        were = "value is" if missing == 1 else "values are"
        notes.append(f"{missing} {were} not finite and left out.")
    keys = [
        # The value of a line in its legend is the marked one, or else the last.
        Key(line.name, write((line.marked or (0, line.values[-1]))[1]), line.colour, line.dash)
        for line in lines
    ]
    many = len(lines) > 2 * len(SERIES)
    values = ", ".join(f"{k.name} {k.text}" for k in keys[: 2 * len(SERIES)])
    by_x = [dict(line.points) for line in lines]
    xs = sorted({x for known in by_x for x in known})
    rows = [
        [numbers.count(x), *(write(known[x]) if x in known else "" for known in by_x)] for x in xs
    ]
    return Chart(
        key,
        title,
        " ".join(notes),
        [] if many else keys,
        line_chart(key, f"{title} against epochs: {values}.", lines, zero=zero, log=log),
        Table(
            f"{title} by epoch",
            ["epoch", *(line.name for line in lines)],
            rows,
            stacks=4 < len(lines) <= 8,
        ),
    )
