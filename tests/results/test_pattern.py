"""The picture of a pattern: kept rows and columns are inked, and nothing else."""

import re
from xml.etree import ElementTree

from tools.results.pattern import INK, PAPER, pattern_picture

SVG = "{http://www.w3.org/2000/svg}"
PATTERN = {
    "matrices": [
        {"name": "a", "rows": 8, "columns": 5, "kept_rows": [1, 2, 6], "kept_columns": [0, 4]},
        {"name": "b<c", "rows": 4, "columns": 8, "kept_rows": None, "kept_columns": [3]},
    ]
}


def inked(group):
    """Paint a drawn matrix, in drawing order; return the inked places as (row, column)."""
    whole = group.find(f"{SVG}rect")
    width, height = int(whole.get("width")), int(whole.get("height"))
    places = {(x, y): PAPER for x in range(width) for y in range(height)}
    for path in group.findall(f"{SVG}path"):
        for part in re.findall(r"M(\d+) (\d+)h(\d+)v(\d+)h-\3z", path.get("d")):
            x, y, w, h = map(int, part)
            places |= {(i, j): path.get("fill") for i in range(x, x + w) for j in range(y, y + h)}
    return {place for place, fill in places.items() if fill == INK}


def test_what_is_kept_is_inked():
    root = ElementTree.fromstring(pattern_picture(PATTERN))
    first, second = root.findall(f"{SVG}g")
    assert inked(first) == {(row, column) for row in (1, 2, 6) for column in (0, 4)}
    assert inked(second) == {(row, 3) for row in range(4)}
    labels = [text.text for text in root.findall(f"{SVG}text")]
    assert labels == ["a: 8 × 5 → 3 × 2", "b<c: 4 × 8 → 4 × 1"]


def test_the_small_matrix_is_drawn_to_scale():
    root = ElementTree.fromstring(pattern_picture(PATTERN))
    small = root.findall(f"{SVG}rect")
    scale = 560 / 8
    sizes = [(float(rect.get("width")), float(rect.get("height"))) for rect in small]
    assert sizes == [(3 * scale, 2 * scale), (4 * scale, scale)]
