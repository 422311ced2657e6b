"""Numbers as people read them: counts, sizes, ratios, and what stands for NaN.

Units follow a no-break space, so that a line never ends between a number and its unit.
"""

import math

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MISSING = "–"


def _odd(value: float) -> str | None:
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return None


def count(value: float) -> str:
    """A whole number with its thousands apart: 1,234,567."""
    return _odd(value) or f"{round(value):,}".replace("-", "−")


def short(value: float) -> str:
    """A count in three digits: 1.23 M."""
    return _odd(value) or _scaled(value, 1000, ("", "\u00a0k", "\u00a0M", "\u00a0G", "\u00a0T"))


def size(value: float) -> str:
    """A number of bytes in three digits: 7.68 MB."""
    return _odd(value) or _scaled(
        value, 1000, ("\u00a0B", "\u00a0kB", "\u00a0MB", "\u00a0GB", "\u00a0TB")
    )


def plain(value: float) -> str:
    """Four significant digits, powers of ten where the number is very small or very large."""
    odd = _odd(value)
    if odd:
        return odd
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e6:
        return power(value)
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 4)}f}".replace("-", "−")


def perplexity(value: float) -> str:
    """Two decimals below a thousand, none above."""
    odd = _odd(value)
    if odd:
        return odd
    return f"{value:.2f}" if value < 1000 else f"{value:,.0f}" if value < 1e6 else power(value)


def milliseconds(value: float) -> str:
    return _odd(value) or f"{_three_digits(value)}\u00a0ms"


def power(value: float) -> str:
    """Two significant digits times a power of ten: 2.1 × 10⁻⁷."""
    odd = _odd(value)
    if odd:
        return odd
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}\u00a0×\u00a010{str(int(exponent)).translate(_SUPERSCRIPT)}".replace(
        "-", "−"
    )


def percent(value: float) -> str:
    """A fraction as percent: 21 %, 2.1 %."""
    odd = _odd(value)
    if odd:
        return odd
    return f"{_three_digits(100 * value) if 0 < value < 0.1 else f'{100 * value:.0f}'}\u00a0%"


def change(value: float) -> str:
    """A relative change with its sign: +1.3 %."""
    return _odd(value) or f"{100 * value:+.1f}\u00a0%".replace("-", "−")


def times(value: float) -> str:
    """A factor: 3.4×."""
    return _odd(value) or f"{_three_digits(value)}×"


def ratio(part: float, whole: float) -> float:
    """Returns part / whole, NaN where that is no number."""
    return part / whole if whole and math.isfinite(whole) else math.nan


def duration(seconds: float) -> str:
    odd = _odd(seconds)
    if odd:
        return odd
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {whole % 60:02d} s" if minutes else f"{whole} s"


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    value = float(f"{value:.3g}") if abs(value) < 1000 else value  # 0.9996 has the digits of 1
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:,.{min(max(digits, 0), 6)}f}"


def _scaled(value: float, base: float, units: tuple[str, ...]) -> str:
    power_of_base = 0
    while abs(value) >= base * 0.9995 and power_of_base < len(units) - 1:
        value /= base
        power_of_base += 1
    text = f"{round(value):,}" if power_of_base == 0 else _three_digits(value)
    return text + units[power_of_base]
