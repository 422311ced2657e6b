"""What to measure, read from the options of `thinrnn bench`."""

import re
from dataclasses import dataclass
from pathlib import Path

from thinrnn.lab.bench.runtimes import RUNTIMES
from thinrnn.lab.run.errors import InputError


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        runtimes: Some of RUNTIMES.
        threads: Numbers of CPU threads.
        shapes: Batch and steps of a call.
        seconds: How long to time each model, for each runtime, shape and number of threads.
        text: A text on which to measure perplexity in ONNX Runtime.
        dense: The shape of an untrained dense model to compare with, like 1500-1500-1500.
        memory: Whether to measure memory too, which takes a process for each model and runtime.
    """

    runtimes: list[str]
    threads: list[int]
    shapes: list[tuple[int, int]]
    seconds: float = 3.0
    text: Path | None = None
    dense: str | None = None
    memory: bool = False

    @property
    def rounds(self) -> int:
        """The least number of times that each model is timed."""
        return 15 if self.seconds else 3

    @property
    def settings(self) -> list[tuple[int, int, bool]]:
        """Batch, steps, cold caches or not; calls of one step are timed both ways."""
        return [(b, t, cold) for b, t in self.shapes for cold in ([False, True][: 1 + (t == 1)])]


def parse_runtimes(text: str) -> list[str]:
    """Return the runtimes of "eager,onnx" or "all"."""
    names = list(RUNTIMES) if text == "all" else text.split(",")
    for name in names:
        if name not in RUNTIMES:
            raise InputError(
                f"there is no runtime '{name}': choose some of {','.join(RUNTIMES)}, or all."
            )
    return list(dict.fromkeys(names))


def parse_shapes(texts: list[str]) -> list[tuple[int, int]]:
    """Return batch and steps of "10x30"."""
    shapes = []
    for text in texts:
        batch, _, steps = text.partition("x")
        if not (batch.isdigit() and steps.isdigit() and int(batch) and int(steps)):
            raise InputError(f"--shape is '{text}', but must be batch x steps like 10x30.")
        shapes.append((int(batch), int(steps)))
    return list(dict.fromkeys(shapes))


def parse_threads(text: str) -> list[int]:
    """Return the numbers of "1,2"."""
    counts = text.split(",")
    if not all(re.fullmatch("[1-9][0-9]{0,4}", count) for count in counts):
        raise InputError(f"--threads is '{text}', but must be numbers above 0 like 1,2.")
    return [int(count) for count in counts]
