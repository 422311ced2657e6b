"""The sparsity pattern of a pruned model as an SVG file, like the figure in the paper.

Each matrix lies on its side: rows from left to right, columns from top to bottom. What is kept is
inked; beside it is the small matrix that is left, drawn to the same scale. By hand: two exact paths
a matrix, for which matplotlib has a raster or a rectangle each.
"""

from collections.abc import Iterable
from typing import Any
from xml.sax.saxutils import escape

PAPER, INK, TEXT = "#d8dee4", "#0969da", "#656d76"
LONGEST = 560.0  # drawn length of the longest side
LINE = 22.0  # height of a line of text
GAP = 14.0


def pattern_picture(pattern: dict[str, Any]) -> str:
    """Return the picture of a run's pattern.json."""
    matrices = pattern["matrices"]
    scale = LONGEST / max(max(m["rows"], m["columns"]) for m in matrices)
    small_at = scale * max(m["rows"] for m in matrices) + 2 * GAP
    drawn, y, width = [], 0.0, 0.0
    for matrix in matrices:
        rows, columns = (_kept(matrix, side) for side in ("rows", "columns"))
        size = (len(rows) * scale, len(columns) * scale)
        label = (
            f"{matrix['name']}: {matrix['rows']} × {matrix['columns']} → "
            f"{len(rows)} × {len(columns)}"
        )
        drawn.append(f'<text x="2" y="{y + 14:g}">{escape(label)}</text>')
        y += LINE
        place = f'transform="translate(0 {y:g}) scale({scale:g})"'
        drawn.append(f"<g {place}>{_matrix(matrix, rows, columns)}</g>")
        drawn.append(
            f'<rect x="{small_at:g}" y="{y:g}" width="{max(size[0], 1):.2f}" '
            f'height="{max(size[1], 1):.2f}" fill="{INK}"/>'
        )
        y += matrix["columns"] * scale + GAP
        width = max(width, small_at + size[0])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {y:.0f}" '
        f'width="{width:.0f}" height="{y:.0f}" font-family="sans-serif" font-size="13" '
        f'fill="{TEXT}">\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def _kept(matrix: dict[str, Any], side: str) -> list[int]:
    kept = matrix[f"kept_{side}"]
    return list(range(matrix[side])) if kept is None else kept


def _matrix(matrix: dict[str, Any], rows: list[int], columns: list[int]) -> str:
    """Ink the kept rows, then put paper over the columns that are gone."""
    width, height = matrix["rows"], matrix["columns"]
    gone = sorted(set(range(height)) - set(columns))
    upright = "".join(f"M{a} 0h{n}v{height}h-{n}z" for a, n in runs(rows))
    flat = "".join(f"M0 {a}h{width}v{n}h-{width}z" for a, n in runs(gone))
    return (
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>'
        f'<path d="{upright}" fill="{INK}"/><path d="{flat}" fill="{PAPER}"/>'
    )


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return rising numbers as runs (first, length).

    >>> runs([2, 3, 4, 7])
    [(2, 3), (7, 1)]
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and sum(found[-1]) == number:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((number, 1))
    return found
