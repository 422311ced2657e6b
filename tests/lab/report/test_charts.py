"""Charts and pictures show the values that they are given, the same way each time."""

import base64
import io
import math
import re
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from thinrnn.lab.report.charts import COLOURS, Line, Point, line_chart, scatter_chart, thin
from thinrnn.lab.report.pictures import gate_picture, kept_shares, matrix_picture, png
from thinrnn.lab.report.read import WeightMatrix

NASTY = "<b>&\"'$x^2$"


def pixels(source: str) -> np.ndarray:
    data = base64.b64decode(source.removeprefix("data:image/png;base64,"))
    return np.asarray(imread(io.BytesIO(data)))  # (height, width, 4), 0 to 1


def places(svg: str, colour: str) -> list[tuple[float, float]]:
    """Where the line of a colour goes, in units of the drawing."""
    for path in ElementTree.fromstring(svg.replace("xlink:", "")).iter("path"):
        if f"stroke: var(--{colour})" in path.get("style", "") and "clip-path" in path.attrib:
            found = re.findall(r"[ML] (\S+) (\S+)", path.get("d", ""))
            return [(float(x), float(y)) for x, y in found]
    raise AssertionError(f"no line of {colour}")


def test_a_line_goes_through_its_values() -> None:
    line = Line("a", [(1, 10.0), (2, 30.0), (3, 20.0), (4, 20.0)], "small")
    drawn = places(line_chart("k", "label", [line]), "small")
    xs, ys = zip(*drawn, strict=True)
    assert np.diff(xs) == pytest.approx(np.diff(xs)[0])
    assert (ys[0] - ys[2]) == pytest.approx(ys[2] - ys[1], abs=1e-3) and ys[2] == ys[3]


def test_values_that_are_not_finite_leave_a_gap() -> None:
    line = Line("a", [(1, 1.0), (2, 2.0), (3, math.nan), (4, 3.0), (5, 0.0)], "small")
    svg = line_chart("k", "label", [line], log=True)
    assert len(places(svg, "small")) == 3
    assert "nan" not in svg and "inf" not in svg


def test_a_drawing_is_the_same_each_time_and_leaves_matplotlib_as_it_was() -> None:
    before = dict(matplotlib.rcParams)
    first, again = (line_chart("k", "l", [Line("a", [(1, 1.0), (2, 2.0)], "c0")]) for _ in range(2))
    assert first == again
    assert dict(matplotlib.rcParams) == before


def test_drawings_of_one_page_share_no_ids() -> None:
    line = Line("a", [(1, 1.0), (2, 2.0)], "c0")
    ids = [re.findall(r' id="([^"]*)"', line_chart(key, "l", [line])) for key in ("one", "two")]
    assert ids[0] and not set(ids[0]) & set(ids[1])


def test_colours_and_font_come_from_the_page() -> None:
    lines = [Line(colour, [(1, 1.0), (2, i)], colour) for i, colour in enumerate(COLOURS)]
    svg = line_chart("k", "label", lines)
    assert not re.findall(r"#[0-9a-f]{6}\b", svg)
    assert "DejaVu" not in svg and "<text" in svg


def test_a_label_is_only_text() -> None:
    svg = scatter_chart("k", NASTY, "weights", [Point("small", 1.0, 2.0, "c0")], [])
    assert ElementTree.fromstring(svg.replace("xlink:", "")).get("aria-label") == NASTY


@given(st.integers(0, 20_000), st.integers(2, 500))
def test_a_thinned_series_keeps_its_ends(length: int, most: int) -> None:
    kept = thin(length, most)
    assert len(kept) == min(length, most) and kept == sorted(set(kept))
    assert not length or (kept[0], kept[-1]) == (0, length - 1)


def test_a_picture_holds_its_values() -> None:
    opacity = np.linspace(0, 1, 60).reshape(4, 15)
    assert pixels(png(opacity))[..., 3] == pytest.approx(opacity, abs=1 / 255)
    assert pixels(png(np.array([[math.nan, 2.0]])))[..., 3].tolist() == [[0.0, 1.0]]


def test_neurons_that_stay_open_are_above() -> None:
    epochs = [np.array([1.0, 1.0, 1.0]), np.array([0.0, 1.0, 0.4])]
    shown = pixels(gate_picture(epochs))[..., 3]
    assert shown == pytest.approx(np.array([[1.0, 1.0], [1.0, 0.4], [1.0, 0.0]]), abs=1 / 255)


def test_a_matrix_is_inked_where_it_is_kept() -> None:
    matrix = WeightMatrix("m", 3, 2, np.array([0, 2]), np.array([1]))
    drawn = matrix_picture(matrix)
    assert pixels(drawn.source)[..., 3].tolist() == [[0, 1], [0, 0], [0, 1]]
    assert drawn.small_width == pytest.approx(drawn.width / 2)
    assert drawn.small_height == pytest.approx(drawn.height * 2 / 3)


@given(st.data(), st.integers(1, 400), st.integers(1, 80))
def test_the_inked_share_is_the_kept_share(data: st.DataObject, size: int, bins: int) -> None:
    kept = sorted(data.draw(st.sets(st.integers(0, size - 1))))
    shares = kept_shares(np.array(kept, dtype=np.int64), size, bins)
    widths = np.diff(np.rint(np.linspace(0, size, len(shares) + 1)))
    assert len(shares) == min(size, bins)
    assert (shares * widths).sum() == pytest.approx(len(kept))
