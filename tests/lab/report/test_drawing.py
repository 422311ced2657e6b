"""Scales, numbers and pictures say what the values are."""

import base64
import math
import struct
import zlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinrnn.lab.report import numbers
from thinrnn.lab.report.raster import _ink, png, ranges
from thinrnn.lab.report.scale import fit, spread, thin
from thinrnn.lab.report.svg import clip, json_block, tag, tick_texts

values = st.floats(-1e9, 1e9).filter(lambda v: v == 0 or abs(v) > 1e-9)


@given(st.lists(values, min_size=1, max_size=20), st.booleans())
def test_a_scale_holds_its_values_and_has_ticks(some: list[float], zero: bool) -> None:
    scale = fit([*some, math.nan, math.inf], 300.0, 20.0, zero=zero)
    assert all(20 - 1e-6 <= scale(v) <= 300 + 1e-6 for v in some)
    ticks = scale.ticks(5)
    assert 1 <= len(ticks) <= 8
    assert all(20 - 1e-3 <= scale(t) <= 300 + 1e-3 for t in ticks)


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=20))
def test_a_log_scale_holds_its_values_and_has_ticks(some: list[float]) -> None:
    scale = fit([*some, 0.0, -1.0, math.nan], 300.0, 20.0, log=True)
    assert all(20 - 1e-6 <= scale(v) <= 300 + 1e-6 for v in some)
    assert 1 <= len(scale.ticks(5)) <= 8


@given(st.integers(0, 20_000), st.integers(2, 500))
def test_a_thinned_series_keeps_its_ends(length: int, most: int) -> None:
    kept = thin(length, most)
    assert len(kept) == min(length, most) and kept == sorted(set(kept))
    assert not length or (kept[0], kept[-1]) == (0, length - 1)


@given(st.lists(st.floats(0, 100), max_size=10))
def test_labels_are_moved_apart_and_stay_inside(wanted: list[float]) -> None:
    places = spread(sorted(wanted), 10.0, 0.0, 100.0)
    assert all(b - a >= 10 - 1e-9 for a, b in pairwise(places))
    assert all(-1e-9 <= p <= 100 + 1e-9 for p in places)


def test_numbers_read_well() -> None:
    assert numbers.count(1234567) == "1,234,567"
    assert numbers.short(1_920_000) == "1.92\u00a0M"
    assert numbers.short(999_950) == "1.00\u00a0M"
    assert numbers.short(12) == "12"
    assert numbers.size(7_702_400) == "7.70\u00a0MB"
    assert numbers.power(2.13e-7) == "2.1\u00a0×\u00a010⁻⁷"
    assert numbers.percent(0.216) == "22\u00a0%"
    assert numbers.percent(0.0216) == "2.16\u00a0%"
    assert numbers.change(-0.013) == "−1.3\u00a0%"
    assert numbers.times(3.4321) == "3.43×"
    assert numbers.duration(7325) == "2 h 02 min"
    assert numbers.plain(0.04041) == "0.0404"


@given(st.floats())
def test_every_number_has_a_text(value: float) -> None:
    for write in (numbers.count, numbers.short, numbers.size, numbers.plain, numbers.power):
        text = write(value)
        assert text and "nan" not in text and "inf" not in text
        assert (text == numbers.MISSING) == math.isnan(value)


def test_ticks_are_written_alike() -> None:
    assert tick_texts([0, 500_000, 1_000_000]) == ["0", "500 k", "1 M"]
    assert tick_texts([0.0, 0.1, 0.2]) == ["0", "0.1", "0.2"]
    assert tick_texts([-5.0, 0.0]) == ["−5", "0"]


def decode(address: str) -> np.ndarray:
    data = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        (check,) = struct.unpack(">I", data[at + 8 + length : at + 12 + length])
        assert check == zlib.crc32(name + body)
        chunks[name], at = body, at + 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    return rows[:, 1:]


def test_a_picture_holds_its_values() -> None:
    grey = np.arange(60, dtype=np.uint8).reshape(4, 15)
    assert (decode(png(grey)) == grey).all()


@given(st.integers(1, 500), st.integers(1, 60))
def test_bins_name_every_neuron_once(size: int, bins: int) -> None:
    named: list[int] = []
    for text in ranges(size, min(size, bins)):
        first, _, last = text.partition("–")
        named += range(int(first), int(last or first) + 1)
    assert named == list(range(size))


@given(st.data(), st.integers(1, 400), st.integers(1, 80))
def test_the_inked_share_is_the_kept_share(data: st.DataObject, size: int, bins: int) -> None:
    kept = sorted(data.draw(st.sets(st.integers(0, size - 1))))
    ink, notes = _ink(np.array(kept, dtype=np.int64), size, bins)
    assert set(ink) <= {0.0, 1.0} and len(notes) == len(ink) == min(size, bins)
    if len(ink) == size:
        assert np.flatnonzero(ink).tolist() == kept
    else:
        # Bins are of nearly equal width, which bounds how far the two shares can be apart.
        assert abs(ink.mean() - len(kept) / size) <= 1 / len(ink) + len(ink) / size


def test_text_cannot_leave_its_place() -> None:
    name = "</script><b a=\"'&"
    assert tag("p", class_=name).count("<") == 2
    assert "<" not in json_block({"name": name})[len('<script type="application/json">') : -9]


@pytest.mark.parametrize("name", ["short", "a" * 300, "字" * 50])
def test_a_clipped_name_fits(name: str) -> None:
    assert len(clip(name, 100.0)) <= max(14, len("short"))
    assert clip("short", 100.0) == "short"
