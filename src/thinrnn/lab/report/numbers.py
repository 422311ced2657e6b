"""Numbers as people read them: counts, sizes, ratios, and a dash for what was not measured.

Units follow a no-break space, so that a line never ends between a number and its unit.
"""

import math
from collections.abc import Callable

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MISSING = "–"

Write = Callable[[float], str]


def _finite(write: Write) -> Write:
    """Leaves only finite values to a function, and gives every text a real minus sign."""

    def written(value: float) -> str:
        if math.isnan(value):
            return MISSING
        if math.isinf(value):
            return "∞" if value > 0 else "−∞"
        return write(value).replace("-", "−")

    return written


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    value = float(f"{value:.3g}") if abs(value) < 1000 else value  # 0.9996 has the digits of 1
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:,.{min(max(digits, 0), 6)}f}"


def _scaled(value: float, units: tuple[str, ...]) -> str:
    thousands = 0
    while abs(value) >= 999.5 and thousands < len(units) - 1:
        value /= 1000
        thousands += 1
    return (f"{round(value):,}" if thousands == 0 else _three_digits(value)) + units[thousands]


count = _finite(lambda value: f"{round(value):,}")  # 1,234,567
size = _finite(lambda v: _scaled(v, ("\u00a0B", "\u00a0kB", "\u00a0MB", "\u00a0GB", "\u00a0TB")))
milliseconds = _finite(lambda value: f"{_three_digits(value)}\u00a0ms")  # 3.61 ms
change = _finite(lambda value: f"{100 * value:+.1f}\u00a0%")  # +1.3 %
times = _finite(lambda value: f"{_three_digits(value)}×")  # 3.40×


@_finite
def short(value: float) -> str:
    """Three digits: 1.23 M, 0.0404; a whole number below a thousand as it is."""
    if 0 < abs(value) < 1e-3:
        return power(value)
    if value % 1 and abs(value) < 999.5:
        return _three_digits(value)
    return _scaled(value, ("", "\u00a0k", "\u00a0M", "\u00a0G", "\u00a0T"))


@_finite
def score(value: float) -> str:
    """A perplexity, an F1: two decimals below a thousand, none above."""
    return f"{value:.2f}" if value < 1000 else f"{value:,.0f}" if value < 1e6 else power(value)


@_finite
def power(value: float) -> str:
    """Two significant digits times a power of ten: 2.1 × 10⁻⁷."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}\u00a0×\u00a010{str(int(exponent)).translate(_SUPERSCRIPT)}"


@_finite
def percent(value: float) -> str:
    """A fraction in percent: 21 %, 2.10 %."""
    digits = _three_digits(100 * value) if 0 < value < 0.1 else f"{100 * value:.0f}"
    return f"{digits}\u00a0%"


@_finite
def tick(value: float) -> str:
    """A value at an axis: 0, 0.5, 1,000, 20 k."""
    for bound, factor, unit in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if bound <= abs(value) < 1e9:
            return f"{value / factor:g}\u00a0{unit}"
    return f"{value:,.6g}" if value == 0 or 1e-3 <= abs(value) < 1e4 else power(value)


@_finite
def duration(seconds: float) -> str:
    """A time in words: 2 h 02 min."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours}\u00a0h {minutes:02d}\u00a0min"
    return f"{minutes}\u00a0min {whole % 60:02d}\u00a0s" if minutes else f"{whole}\u00a0s"


def ratio(part: float, whole: float) -> float:
    """Returns part / whole, NaN where that is not a number."""
    return part / whole if whole and math.isfinite(whole) else math.nan
