"""Pictures of many small values: gate heat maps and weight matrices.

A picture is a grey PNG, a few kilobytes inside the page, used as a mask over one flat colour. So
it follows the theme, and hover.js reads the values back out of the same pixels.
"""

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from thinrnn.lab.report.read import Matrix
from thinrnn.lab.report.svg import chart, tag, text

PANEL = (294.0, 132.0)
_SIDE = 240.0  # longest side of a drawn matrix
_GAP = 12.0
_RATIO = 4.0  # a longer matrix is drawn with its long side squeezed to this


def png(grey: np.ndarray) -> str:
    """Returns an 8-bit grey picture (height, width) as a data address."""
    height, width = grey.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), grey.astype(np.uint8)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )
    return "data:image/png;base64," + base64.b64encode(data).decode()


def ranges(size: int, bins: int) -> list[str]:
    """Returns what each of `bins` even bins of 0..size-1 holds.

    >>> ranges(6, 4)
    ['0–1', '2', '3', '4–5']
    """
    edges = _edges(size, bins)
    return [str(a) if b - a == 1 else f"{a}–{b - 1}" for a, b in pairwise(edges)]


def _edges(size: int, bins: int) -> list[int]:
    return [round(i * size / bins) for i in range(bins + 1)]


def draw_heat(
    key: str, group: str, values: np.ndarray, epochs: Sequence[int], *, size: int, label: str
) -> str:
    """Returns gate values (neuron bins, epochs) as a picture, long-lived neurons at the top."""
    bins = values.shape[0]
    order = np.argsort(-values.mean(axis=1), kind="stable")
    width, height = PANEL
    neurons = ranges(size, bins)
    drawing = [_masked(key, values[order], 0.0, 0.0, width, height)]
    drawing.append(text(0.0, height + 17, f"epoch {epochs[0]}", "tick"))
    if len(epochs) > 1:
        drawing.append(text(width, height + 17, str(epochs[-1]), "tick", "end"))
    hover = {
        "kind": "raster",
        "box": [0.0, 0.0, width, height],
        "across": ["epoch", [str(epoch) for epoch in epochs]],
        "down": [f"{group}, neuron", [neurons[i] for i in order]],
        "value": "gate",
    }
    return chart("".join(drawing), width, height + 22, label=label, kind="heat", hover=hover)


def draw_matrix(key: str, matrix: Matrix, *, label: str) -> str:
    """Returns the matrix at its original shape, kept entries inked, and the small one beside it."""
    width, height = _drawn_size(matrix)
    rows, row_notes = _ink(matrix.kept_rows, matrix.rows, int(height))
    columns, column_notes = _ink(matrix.kept_columns, matrix.columns, int(width))
    small = {
        "width": max(width * len(matrix.kept_columns) / matrix.columns, 1.0),
        "height": max(height * len(matrix.kept_rows) / matrix.rows, 1.0),
    }
    drawing = [
        _masked(key, np.outer(rows, columns), 0.0, 0.0, width, height),
        tag("rect", x=0.5, y=0.5, width=width - 1, height=height - 1, class_="outline"),
        tag("rect", x=width + _GAP, y=0.0, class_="ink", **small),
    ]
    hover = {
        "kind": "raster",
        "box": [0.0, 0.0, width, height],
        "title": matrix.name,
        "across": ["column", ranges(matrix.columns, len(columns)), column_notes],
        "down": ["row", ranges(matrix.rows, len(rows)), row_notes],
    }
    drawn = "".join(drawing)
    return chart(drawn, picture_width(matrix), height, label=label, kind="matrix", hover=hover)


def picture_width(matrix: Matrix) -> float:
    """Returns the width of both rectangles and the gap between them."""
    width, _ = _drawn_size(matrix)
    return width + _GAP + max(math.ceil(width * len(matrix.kept_columns) / matrix.columns), 1)


def squeezed(matrix: Matrix) -> bool:
    """Whether the picture shows the matrix shorter than it is."""
    return max(matrix.rows, matrix.columns) > _RATIO * min(matrix.rows, matrix.columns)


def _drawn_size(matrix: Matrix) -> tuple[float, float]:
    longest = max(matrix.rows, matrix.columns)
    scale = _SIDE / longest
    least = longest / _RATIO
    return (
        float(round(max(matrix.columns, least) * scale)),
        float(round(max(matrix.rows, least) * scale)),
    )


def _ink(kept: np.ndarray, size: int, bins: int) -> tuple[np.ndarray, list[str]]:
    """Returns which bins of 0..size-1 are inked, and in words how much of each is kept.

    Bins that hold several rows are inked in proportion to the rows kept so far, so the inked area
    is the kept area; a bin of one row is inked exactly when that row is kept.
    """
    bins = max(1, min(size, bins))
    edges = _edges(size, bins)
    flags = np.zeros(size)
    flags[kept] = 1.0
    counts = np.add.reduceat(flags, edges[:-1])
    filled = np.floor(np.concatenate([[0.0], np.cumsum(counts / np.diff(edges))]) + 0.5)
    notes = [
        f"{n:.0f} of {width} kept" if width > 1 else "kept" if n else "removed"
        for n, width in zip(counts, np.diff(edges), strict=True)
    ]
    return np.minimum(np.diff(filled), 1.0), notes


def _masked(key: str, values: np.ndarray, x: float, y: float, width: float, height: float) -> str:
    """A pale ground and one flat colour on it, as opaque as the values (0 to 1) say."""
    grey = np.rint(np.clip(np.nan_to_num(values), 0, 1) * 255).astype(np.uint8)
    # Two or more pixels per drawing unit, so that cells keep sharp edges on any screen.
    for axis, units in ((0, height), (1, width)):
        grey = grey.repeat(math.ceil(2 * units / grey.shape[axis]), axis=axis)
    image = tag(
        "image",
        href=png(grey),
        x=x,
        y=y,
        width=width,
        height=height,
        preserveAspectRatio="none",
    )
    box = {"x": x, "y": y, "width": width, "height": height}
    return (
        tag("mask", image, id=key, maskUnits="userSpaceOnUse", **box)
        + tag("rect", class_="ground", **box)
        + tag("rect", class_="ink", mask=f"url(#{key})", **box)
    )
