"""What is left of the model: weight matrices before and after, sizes and speed."""

import math
from collections.abc import Callable, Sequence
from html import escape

from thinrnn.lab.report import numbers
from thinrnn.lab.report.bars import Bar, draw_bars
from thinrnn.lab.report.headline import conditions
from thinrnn.lab.report.page import HALF, NARROW, both, figure, folded, section, table
from thinrnn.lab.report.raster import draw_matrix, picture_width, squeezed
from thinrnn.lab.report.read import KINDS, Matrix, Run
from thinrnn.lab.report.svg import tag


def matrices(run: Run) -> str:
    """Returns every weight matrix at its original shape, and the small one to the same scale."""
    if not run.matrices:
        return ""
    items = [_picture(i, matrix) for i, matrix in enumerate(run.matrices)]
    rows = [
        [
            m.name,
            f"{m.rows} × {m.columns}",
            f"{len(m.kept_rows)} × {len(m.kept_columns)}",
            numbers.count(m.rows * m.columns),
            numbers.count(_left(m)),
            numbers.percent(numbers.ratio(_left(m), m.rows * m.columns)),
        ]
        for m in run.matrices
    ]
    widest = max(128.0, *(picture_width(m) for m in run.matrices))
    head = ["matrix", "shape", "small shape", "weights", "weights left", "share"]
    note = "Left, the original matrix: inked where row and column are kept, pale where removed. "
    note += "Right, the small matrix to the same scale."
    if any(squeezed(m) for m in run.matrices):
        note += " Matrices longer than 4 : 1 are drawn with their long side shortened."
    return section(
        "matrices",
        "Weight matrices",
        figure(
            "Before and after.",
            note,
            folded(items, "matrices", style=f"--least:{widest:.0f}px"),
            table(head, rows, caption="Shapes of the weight matrices"),
        ),
    )


def bars(run: Run) -> str:
    """Returns weights, bytes and times of the models side by side."""
    models = [run.summaries[kind] for kind in KINDS if kind in run.summaries]
    # A model with an ONNX time has a second bar for it.
    times = [Bar(m.kind, m.milliseconds, m.kind) for m in models]
    times += [Bar(f"{m.kind}, ONNX", m.onnx_milliseconds, m.kind) for m in models]
    charts = [
        _bars(
            "Weights",
            [Bar(m.kind, m.weights, m.kind) for m in models],
            numbers.short,
            numbers.count,
        ),
        _bars("Bytes", [Bar(m.kind, m.bytes, m.kind) for m in models], numbers.size, numbers.count),
        _bars(
            "Mult-adds per step",
            [Bar(m.kind, m.macs, m.kind) for m in models],
            numbers.short,
            numbers.count,
        ),
        _bars("Time per call", times, numbers.milliseconds, numbers.milliseconds),
    ]
    charts = [chart for chart in charts if chart]
    if not charts:
        return ""
    rows = [
        [
            m.kind,
            numbers.count(m.weights),
            numbers.count(m.bytes),
            numbers.count(m.macs),
            numbers.milliseconds(m.milliseconds),
            numbers.milliseconds(m.onnx_milliseconds),
        ]
        for m in models
    ]
    head = ["model", "weights", "bytes", "mult-adds", "time per call", "time, ONNX"]
    timed = next((m for m in models if math.isfinite(m.milliseconds)), None)
    note = f"Times are medians per call, {conditions(timed)}." if timed else ""
    whole = tag("div", "".join(charts), class_="bar-grid")
    numbers_table = table(head, rows, caption="Size and speed of the models")
    return section(
        "sizes", "Size and speed", figure("Models compared.", note, whole, numbers_table)
    )


def _left(matrix: Matrix) -> int:
    return len(matrix.kept_rows) * len(matrix.kept_columns)


def _picture(index: int, matrix: Matrix) -> str:
    before = f"{matrix.rows} × {matrix.columns}"
    after = f"{len(matrix.kept_rows)} × {len(matrix.kept_columns)}"
    left = numbers.percent(numbers.ratio(_left(matrix), matrix.rows * matrix.columns))
    label = f"{matrix.name}: {before} before, {after} after, {left} of the weights left."
    return tag(
        "div",
        draw_matrix(f"matrix-{index}", matrix, label=label)
        + tag("p", f"<b>{escape(matrix.name)}</b>")
        + tag("p", f"{before}<br>→ {after}<br>{left} left"),
        class_="picture",
    )


def _bars(
    title: str, items: Sequence[Bar], write: Callable[[float], str], exact: Callable[[float], str]
) -> str:
    items = [bar for bar in items if math.isfinite(bar.value)]
    if not items:
        return ""
    wide, narrow = (
        draw_bars(title, items, size[0], value=write, exact=exact) for size in (HALF, NARROW)
    )
    return tag("div", tag("p", f"<b>{escape(title)}</b>") + both(wide, narrow))
