"""Calls timed in turn, so that whatever else the machine does meets all of them alike."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

SHORTEST = 1e-3  # seconds; quicker calls are timed several at a time
WARMING = 0.05  # seconds; a few calls are too few: the last cache takes in what was evicted before
LONG = 2  # times that; what takes longer is not called again to be warm
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNKNOWN_CACHE = 64 << 20  # bytes; where the system does not say how large its caches are

Call = Callable[[], Any]


class Clock:
    """Milliseconds per call, by name.

    `before` is called with a name, untimed, before that one is timed; `after` at the end of what is
    timed; calls shorter than `shortest` seconds are repeated until they take as long.
    """

    def __init__(
        self,
        calls: Mapping[str, Call],
        *,
        before: Callable[[str], Any] = lambda name: None,
        after: Call = lambda: None,
        shortest: float = SHORTEST,
    ) -> None:
        self.calls, self.before, self.after, self.rounds = dict(calls), before, after, 0
        self.repeats = dict.fromkeys(calls, 2)  # the first calls allocate and choose kernels
        for name in calls:
            self._time(name)
            self.repeats[name] = 1
            self.repeats[name] = max(1, int(shortest / max(self._time(name), 1e-9)))

    def round(self) -> dict[str, float]:
        """Time each of them once, beginning with another one each time."""
        names = list(self.calls)
        first = self.rounds % len(names)
        self.rounds += 1
        return {name: 1000 * self._time(name) for name in names[first:] + names[:first]}

    def _time(self, name: str) -> float:
        call, repeats = self.calls[name], self.repeats[name]
        self.before(name)
        began = time.perf_counter()
        for _ in range(repeats):
            call()
        self.after()
        return (time.perf_counter() - began) / repeats


def warm_clock(calls: Mapping[str, Call]) -> Clock:
    """Return a clock that finds in the caches what fits there, whoever was timed before.

    A call that takes longer than that warms up itself.
    """
    quickest: dict[str, float] = {}  # of several calls: one that was held up says nothing

    def warm(name: str) -> None:
        call = calls[name]
        if name not in quickest:
            call()  # the first one allocates and chooses kernels
            quickest[name] = min(_seconds(call), _seconds(call))
        began = time.perf_counter()
        while quickest[name] < LONG * WARMING and time.perf_counter() - began < WARMING:
            quickest[name] = min(quickest[name], _seconds(call))

    return Clock(calls, before=warm, shortest=WARMING / 2)


def _seconds(call: Call) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def cold_clock(calls: Mapping[str, Call], cache: int) -> Clock:
    """Return a clock before whose every call a cache of so many bytes is filled with others."""
    import numpy

    others = numpy.ones(2 * cache, numpy.uint8)

    def flush(name: str) -> None:
        others.max()  # to write would leave the timed call to bring it all back to memory

    return Clock(calls, before=flush, shortest=0)


def largest_cache() -> int:
    """Return the bytes of the largest cache."""
    units = {"K": 1 << 10, "M": 1 << 20}
    sizes = []
    for file in CACHES.glob("index*/size"):
        text = file.read_text().strip()
        if text[-1:] in units and text[:-1].isdigit():
            sizes.append(int(text[:-1]) * units[text[-1]])
    return max(sizes, default=UNKNOWN_CACHE)
