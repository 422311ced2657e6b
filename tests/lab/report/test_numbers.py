"""Numbers are written so that they can be read, whatever they are."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinrnn.lab.report import numbers

WRITERS = ("count", "short", "size", "score", "milliseconds", "power", "percent")


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        ("count", 1234567, "1,234,567"),
        ("short", 1_920_000, "1.92 M"),
        ("short", 999_950, "1.00 M"),
        ("short", 12, "12"),
        ("size", 7_702_400, "7.70 MB"),
        ("power", 2.13e-7, "2.1 × 10⁻⁷"),
        ("percent", 0.216, "22 %"),
        ("percent", 0.0216, "2.16 %"),
        ("change", -0.013, "−1.3 %"),
        ("times", 3.4321, "3.43×"),
        ("duration", 7325, "2 h 02 min"),
        ("short", 0.04041, "0.0404"),
        ("tick", 20_000, "20 k"),
        ("tick", -0.5, "−0.5"),
        ("tick", 1_000_000, "1 M"),
    ],
)
def test_numbers_read_well(write: str, value: float, text: str) -> None:
    assert getattr(numbers, write)(value).replace("\u00a0", " ") == text


# Beyond 1e300 a percentage is too large for a float.
NUMBERS = st.floats(-1e300, 1e300) | st.sampled_from([math.inf, -math.inf, math.nan])


@given(NUMBERS, st.sampled_from([*WRITERS, "change", "times", "tick", "duration"]))
def test_every_number_has_a_text(value: float, write: str) -> None:
    text = getattr(numbers, write)(value)
    assert text and "nan" not in text and "inf" not in text
    assert (text == numbers.MISSING) == math.isnan(value)
