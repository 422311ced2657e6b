"""From values to places on a page: scales, round tick values, thinning of long series."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_POINTS = 400


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] to [start, end] in drawing units, on a linear or a log axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self._warp(self.low), self._warp(self.high)
        return self.start + (self._warp(value) - low) / (high - low) * (self.end - self.start)

    def _warp(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def ticks(self, most: int) -> list[float]:
        """Returns at most about `most` round values inside the scale."""
        if self.log:
            found = _log_ticks(self.low, self.high, most)
            if len(found) >= 3:
                return found
        return _linear_ticks(self.low, self.high, most)


def fit(
    values: Iterable[float],
    start: float,
    end: float,
    *,
    log: bool = False,
    zero: bool = False,
    air: float = 0.05,
) -> Scale:
    """Returns a scale that holds all finite values, with `air` of their range around them."""
    finite = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    low, high = (min(finite), max(finite)) if finite else (1.0, 2.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if log:
        factor = max((high / low) ** air, 1.02)
        return Scale(low / factor, high * factor, start, end, log=True)
    space = (high - low) * air or abs(high) * 0.1 or 1.0
    bottom = low if zero and low == 0.0 else low - space
    top = high if zero and high == 0.0 and low < 0.0 else high + space
    return Scale(bottom, top, start, end)


def spans_decades(values: Iterable[float], factor: float = 4.0) -> bool:
    """Whether a log axis shows these values better than a linear one."""
    finite = [v for v in values if math.isfinite(v)]
    return bool(finite) and min(finite) > 0 and max(finite) / min(finite) > factor


def thin(length: int, most: int = MOST_POINTS) -> list[int]:
    """Returns at most `most` evenly spread indices of a series, the first and the last among them.

    >>> thin(5, 3)
    [0, 2, 4]
    """
    if length <= most:
        return list(range(length))
    return [round(i * (length - 1) / (most - 1)) for i in range(most)]


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Returns places near the wanted ones (given in rising order), at least `gap` apart."""
    places = list(wanted)
    for i, place in enumerate(places):
        places[i] = max(place, low if i == 0 else places[i - 1] + gap)
    for i in reversed(range(len(places))):
        places[i] = min(places[i], high if i == len(places) - 1 else places[i + 1] - gap)
    return places


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    raw = (high - low) / max(most, 1)
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [m * 10.0**e for e in range(first, last + 1) for m in steps]
        inside = [t for t in ticks if low <= t <= high]
        if len(inside) <= most + 2:
            return inside
    every = math.ceil(len(inside) / most)
    return inside[::every]
