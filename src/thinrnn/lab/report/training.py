"""How the run went: gates closing, perplexity or EM and F1, penalty."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from thinrnn.lab.report import numbers
from thinrnn.lab.report.lines import LineChart, Series, draw_lines
from thinrnn.lab.report.page import HALF, NARROW, WIDE, both, figure, folded, section, table
from thinrnn.lab.report.raster import draw_heat
from thinrnn.lab.report.read import PHASES, Epoch, Run
from thinrnn.lab.report.scale import MOST_POINTS, thin
from thinrnn.lab.report.svg import tag

_COLOURS = 5  # group colours in the style sheet; the next as many groups have them dashed
_MOST_PIXELS = 600_000  # of all heat maps together


def gates(run: Run) -> str:
    """Returns kept neurons against epochs, and the gate values of every group."""
    epochs = run.phase("gated")
    groups = list(dict.fromkeys(group for epoch in epochs for group in epoch.kept))
    parts = [_kept_figure(epochs, groups)] if groups else []
    panels = list(dict.fromkeys(group for epoch in epochs for group in epoch.values))
    if panels:
        parts.append(_heat_figure(epochs, panels))
    return section("gates", "Gates closing", *parts)


def curves(run: Run) -> str:
    """Returns the quality of all phases, the penalty and the weights that are left."""
    small = [figure for figure in (_penalty_figure(run), _params_figure(run)) if figure]
    if run.is_reader:
        small = [_quality_figure(run, measure, HALF) for measure in (EM, F1)] + small
    pair = tag("div", "".join(small), class_="pair") if any(small) else ""
    if run.is_reader:
        return section("curves", "EM, F1 and penalty", pair)
    return section("curves", "Perplexity and penalty", _quality_figure(run, PERPLEXITY, WIDE), pair)


def _kept_figure(epochs: Sequence[Epoch], groups: Sequence[str]) -> str:
    shown = [epochs[i] for i in thin(len(epochs), MOST_POINTS - 1)]
    kept_at = {epoch.epoch: epoch.kept for epoch in shown}
    if shown[0].epoch == 1:
        kept_at = {0: shown[0].sizes} | kept_at  # before training all neurons are there
    series = [
        Series(
            group,
            [float(epoch) for epoch in kept_at],
            [float(kept.get(group, math.nan)) for kept in kept_at.values()],
            _style(i, groups),
        )
        for i, group in enumerate(groups)
    ]
    last = epochs[-1]
    kept, size = sum(last.kept.values()), sum(last.sizes.values())
    note = f"After epoch {last.epoch}, {numbers.count(kept)} of {numbers.count(size)} neurons "
    note += f"are left ({numbers.percent(numbers.ratio(kept, size))})."
    note += _thinned(len(epochs))
    label = "Kept neurons against epoch. " + note
    chart = LineChart("kept", label, "kept neurons", series, zero=True, value=numbers.count)
    numbers_table = _series_table(chart, "Kept neurons")
    return figure("Kept neurons per group.", note, _two_sizes(chart), numbers_table)


def _heat_figure(epochs: Sequence[Epoch], groups: Sequence[str]) -> str:
    panels, means = [], {}
    per_group = max(_MOST_PIXELS // len(groups), 1)
    for i, group in enumerate(groups):
        bins = next(len(e.values[group]) for e in reversed(epochs) if group in e.values)
        there = [e for e in epochs if len(e.values.get(group, ())) == bins]
        if not bins:
            continue
        shown = [there[j] for j in thin(len(there), max(min(MOST_POINTS, per_group // bins), 2))]
        values = np.stack([e.values[group] for e in shown], axis=1)  # (bins, epochs)
        means[group] = {e.epoch: float(np.mean(e.values[group])) for e in shown}
        last = there[-1]
        size, kept = last.sizes.get(group, bins), last.kept.get(group, math.nan)
        said = f"{numbers.count(kept)} of {numbers.count(size)} kept"
        label = f"Gate values of {group} by epoch, {said}."
        picture = draw_heat(
            f"heat-{i}", group, values, [e.epoch for e in shown], size=size, label=label
        )
        panels.append(_panel(group, said, picture))
    if not panels:
        return ""
    shown_epochs = sorted({epoch for by_epoch in means.values() for epoch in by_epoch})
    rows = [
        [str(e), *(numbers.plain(means[g].get(e, math.nan)) for g in means)] for e in shown_epochs
    ]
    numbers_table = table(["epoch", *means], rows, caption="Mean gate value by epoch and group")
    key = '<span class="key">closed <i class="ramp"></i> open</span>'
    grid = folded(panels, "panels")
    note = "Each row is a neuron, those that stay open longest at the top; epochs run to the right."
    note += _thinned(len(epochs), len(shown_epochs))
    return figure("Gate values.", note, key + grid, numbers_table)


def _panel(group: str, said: str, picture: str) -> str:
    title = tag("p", f"<b>{escape(group)}</b> {escape(said)}")
    return tag("div", title + picture, class_="panel")


@dataclass(frozen=True)
class _Measure:
    """How well a model does at the end of an epoch, and which of two values is better."""

    kind: str
    name: str
    get: Callable[[Epoch], float]
    best: Callable[[Iterable[float]], float]


PERPLEXITY = _Measure("perplexity", "validation perplexity", lambda e: e.valid_perplexity, min)
EM = _Measure("em", "exact match (EM) on dev, per cent", lambda e: e.em, max)
F1 = _Measure("f1", "F1 on dev, per cent", lambda e: e.f1, max)


def _quality_figure(run: Run, measure: _Measure, size: tuple[float, float]) -> str:
    series = []
    for phase in PHASES:
        epochs = run.phase(phase)
        shown = [epochs[i] for i in thin(len(epochs))]
        x = [float(e.epoch) for e in shown]
        y = [measure.get(e) for e in shown]
        if any(math.isfinite(v) for v in y):
            series.append(Series(phase, x, y, phase))
    if not series:
        return ""
    best = [
        f"{s.name} {numbers.perplexity(measure.best(filter(math.isfinite, s.y)))}" for s in series
    ]
    title = measure.name[0].upper() + measure.name[1:]
    chart = LineChart(
        measure.kind,
        f"{title} against epoch. Best: {', '.join(best)}.",
        measure.name,
        series,
        log=None if measure is PERPLEXITY else False,
        value=numbers.perplexity,
    )
    note = f"Best so far: {', '.join(best)}." if not run.finished else f"Best: {', '.join(best)}."
    note += _axis(chart)
    note += _thinned(max(len(run.phase(phase)) for phase in PHASES))
    note += _left_out([measure.get(e) for e in run.epochs])
    return figure(f"{title}.", note, _two_sizes(chart, size), _series_table(chart, title))


def _penalty_figure(run: Run) -> str:
    """Steps show the penalty finer than epochs; older runs and short ones may have no steps."""
    steps = sorted((s for s in run.steps if s.phase == "gated"), key=lambda s: s.step)
    points = [(s.epoch, s.penalty) for s in steps]
    if sum(math.isfinite(y) for _, y in points) < 2:
        points = [(float(e.epoch), e.penalty) for e in run.phase("gated")]
    # A target that is kept by closing gates outright adds nothing to the loss.
    if not any(math.isfinite(y) and y for _, y in points):
        return ""
    shown = [points[i] for i in thin(len(points))]
    series = Series("penalty", [x for x, _ in shown], [y for _, y in shown], "gated")
    chart = LineChart(
        "penalty", "Penalty on open gates against epoch.", "penalty added to the loss", [series]
    )
    note = "What the open gates add to the loss." + _axis(chart) + _left_out([y for _, y in points])
    return figure("Penalty.", note, _two_sizes(chart, HALF), _series_table(chart, "Penalty"))


def _params_figure(run: Run) -> str:
    epochs = [e for e in run.phase("gated") if math.isfinite(e.params)]
    if not epochs:
        return ""
    shown = [epochs[i] for i in thin(len(epochs))]
    x = [float(e.epoch) for e in shown]
    series = [Series("left", x, [e.params for e in shown], "gated")]
    note = f"{numbers.short(epochs[-1].params)} after epoch {epochs[-1].epoch}"
    if math.isfinite(epochs[-1].target):
        series.append(Series("target", x, [e.target for e in shown], "target"))
        note += f", target {numbers.short(epochs[-1].target)}"
    chart = LineChart(
        "params",
        f"Parameters left against epoch: {note}.",
        "parameters",
        series,
        zero=True,
        value=numbers.short,
    )
    numbers_table = _series_table(chart, "Parameters", numbers.count)
    return figure("Parameters left.", f"{note}.", _two_sizes(chart, HALF), numbers_table)


def _two_sizes(chart: LineChart, wide: tuple[float, float] = WIDE) -> str:
    return both(draw_lines(chart, *wide), draw_lines(chart, *NARROW))


def _series_table(chart: LineChart, what: str, write: Callable[[float], str] | None = None) -> str:
    write = write or chart.value
    by_x = [dict(zip(s.x, s.y, strict=True)) for s in chart.series]
    xs = sorted({x for known in by_x for x in known if math.isfinite(x)})
    rows = [
        [numbers.plain(x) if x % 1 else numbers.count(x)]
        + [write(known.get(x, math.nan)) for known in by_x]
        for x in xs
    ]
    return table(["epoch", *(s.name for s in chart.series)], rows, caption=f"{what} by epoch")


def _style(index: int, groups: Sequence[str]) -> str:
    if len(groups) > 2 * _COLOURS:
        return "many"
    return f"c{index % _COLOURS}" + (" dashed" if index >= _COLOURS else "")


def _thinned(length: int, shown: int = MOST_POINTS) -> str:
    return f" Shown are {shown} of {numbers.count(length)} epochs." if length > shown else ""


def _axis(chart: LineChart) -> str:
    return " The axis is logarithmic." if chart.is_log else ""


def _left_out(values: Sequence[float]) -> str:
    bad = sum(not math.isfinite(v) for v in values)
    if not bad:
        return ""
    said = "value was" if bad == 1 else "values were"
    return f" {numbers.count(bad)} {said} not finite and left out."
