"""Models timed side by side in one process.

Calls are interleaved, one of each model per round in rotating order, so that other work on the
machine slows all of them alike. The result has medians, spreads, and ratios of medians.
"""

import contextlib
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinrnn._table import table
from thinrnn.errors import ExampleError

# torch is imported where models are called: the clocks also time programs that do without it.

NOISY = 1.5  # times the 10th percentile: with a 90th above, two medians say little
SHORTEST = 1e-3  # seconds; quicker calls are timed several at a time
WARMING = 0.05  # seconds; a few calls are too few: the last cache takes in what was evicted before
LONG = 2  # times that; what takes longer is not called again to be warm
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNKNOWN_CACHE = 64 << 20  # bytes; where the system does not say how large its caches are

TOO_NOISY = "the times are too noisy to compare"

Call = Callable[[], Any]


@dataclass(frozen=True)
class Timing:
    """Milliseconds per call of one model.

    Attributes:
        median: The median.
        low: The 10th percentile.
        high: The 90th percentile.
        calls: How many calls were timed.

    Example:
        >>> times = thinrnn.benchmark({"lstm": nn.LSTM(8, 32)}, torch.randn(5, 1, 8), seconds=0.01)
        >>> timing = times["lstm"]
        >>> timing.low <= timing.median <= timing.high
        True
    """

    median: float
    low: float
    high: float
    calls: int

    @property
    def spread(self) -> float:
        """How many times the 10th percentile the 90th is."""
        return self.high / self.low if self.low else 1.0

    @property
    def is_noisy(self) -> bool:
        """Whether the times vary too much to compare their median with another."""
        return self.spread > NOISY


@dataclass(frozen=True)
class Benchmark(Mapping[str, Timing]):
    """The timing of each model by name, in the order given; `print` shows them as a table.

    Attributes:
        timings: The timings by name. The first one is what the others are compared with.
        threads: The CPU threads that torch used.

    Example:
        >>> models = {"dense": nn.LSTM(8, 64), "small": nn.LSTM(8, 16)}
        >>> times = thinrnn.benchmark(models, torch.randn(5, 1, 8), seconds=0.01)
        >>> times.speedup("dense")
        1.0
        >>> fastest = min(times, key=lambda name: times[name].median)
    """

    timings: dict[str, Timing]
    threads: int

    def __getitem__(self, name: str) -> Timing:
        return self.timings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.timings)

    def __len__(self) -> int:
        return len(self.timings)

    def speedup(self, name: str) -> float:
        """Return how many times faster a model is than the first one."""
        first = next(iter(self.timings.values()))
        return first.median / self.timings[name].median

    @property
    def is_noisy(self) -> bool:
        """Whether the times of some model vary too much for its speed-up to mean anything."""
        return any(timing.is_noisy for timing in self.timings.values())

    def __str__(self) -> str:
        rows = [("model", "median ms", "10-90 %", "speed-up")]
        for name, t in self.timings.items():
            spread = f"{t.low:.3f}-{t.high:.3f}"
            rows.append((name, f"{t.median:.3f}", spread, f"{self.speedup(name):.2f}x"))
        lines = [table(rows, "<>")]
        if self.is_noisy:
            lines.append(f"{TOO_NOISY}: time again when the machine is idle")
        return "\n".join(lines)


def benchmark(
    models: Mapping[str, Callable[..., Any]],
    example: Any,
    *,
    threads: int = 1,
    seconds: float = 2.0,
    rounds: int = 15,
) -> Benchmark:
    """Time models side by side: how long does each take for one call on the example?

    The models take turns, so that other work on the machine slows all of them alike. Compare the
    medians of one benchmark, not those of two; not even these where it `is_noisy`.

    Args:
        models: What to call, by name. Torch modules are in eval mode meanwhile.
        example: What to call them with: a tensor, a tuple of arguments, or a dictionary of keyword
            arguments.
        threads: The CPU threads that torch may use meanwhile.
        seconds: About how long to time each model.
        rounds: How often to time each model at least, however long that takes.

    Returns:
        The timing of each model, and how many times faster than the first one it is.

    Raises:
        ExampleError: There is no model, or one does not run on the example.

    Examples:
        >>> models = {"wide": nn.LSTM(64, 512), "narrow": nn.LSTM(64, 8)}
        >>> benchmark(models, torch.zeros(20, 4, 64), seconds=0.1).speedup("narrow") > 1
        True
    """
    import torch

    from thinrnn._model.tree import call_arguments, tensors_in

    if not models:
        raise ExampleError("there is no model to time: give at least one.")
    args, kwargs = call_arguments(example)
    on_gpu = any(tensor.is_cuda for tensor in tensors_in((args, kwargs)))

    def call(name: str) -> Callable[[], Any]:
        return lambda: models[name](*args, **kwargs)

    with torch_threads(threads), _eval_mode(models), torch.inference_mode():
        for name, model in models.items():
            try:
                model(*args, **kwargs)
            except Exception as error:
                raise ExampleError(f"'{name}' does not run on the example: {error}") from error
        after = torch.cuda.synchronize if on_gpu else lambda: None
        clock = Clock({name: call(name) for name in models}, after=after)
        found: list[dict[str, float]] = []
        began = time.perf_counter()
        while len(found) < rounds or time.perf_counter() - began < seconds * len(models):
            found.append(clock.round())
    timings = {n: timing_of([one[n] for one in found], clock.repeats[n]) for n in models}
    return Benchmark(timings, threads)


def timing_of(times: list[float], calls: int) -> Timing:
    """Return median and spread of times, each the mean of this many calls."""
    ordered = sorted(times)
    last = len(ordered) - 1
    low, high = ordered[round(0.1 * last)], ordered[round(0.9 * last)]
    return Timing(statistics.median(ordered), low, high, len(ordered) * calls)


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use this many CPU threads meanwhile."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _eval_mode(models: Mapping[str, Any]) -> Iterator[None]:
    from torch import nn

    modules = [m for m in models.values() if isinstance(m, nn.Module)]
    modes = {part: part.training for module in modules for part in module.modules()}
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training


class Clock:
    """Milliseconds per call, by name.

    `before` is called with a name, untimed, before that one is timed; `after` at the end of what is
    timed; calls shorter than `shortest` seconds are repeated until they take as long. `now` returns
    seconds; `time.thread_time` leaves out what other programs take meanwhile.
    """

    def __init__(
        self,
        calls: Mapping[str, Call],
        *,
        before: Callable[[str], Any] = lambda name: None,
        after: Call = lambda: None,
        shortest: float = SHORTEST,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.calls, self.before, self.after, self.rounds = dict(calls), before, after, 0
        self.now = now or time.perf_counter
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
        began = self.now()
        for _ in range(repeats):
            call()
        self.after()
        return (self.now() - began) / repeats


def warm_clock(calls: Mapping[str, Call], *, now: Callable[[], float] | None = None) -> Clock:
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

    return Clock(calls, before=warm, shortest=WARMING / 2, now=now)


def _seconds(call: Call) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def cold_clock(calls: Mapping[str, Call], cache: int) -> Clock:
    """Return a clock that overwrites a cache of this many bytes before each call."""
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


def processor() -> str:
    """Return the name of the CPU."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
