"""A process that holds models in one runtime; it reads requests and writes answers, line by line.

One runtime to a process: their threads and allocators do not meet. ONNX Runtime is used without
torch, so that the memory of this process is that of a program which has only the file.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from thinrnn.lab.bench.memory import peak_memory, restart_peak
from thinrnn.lab.bench.runtimes import Prepare, prepare
from thinrnn.timing import Clock, cold_clock, warm_clock


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    holder = Holder()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(holder, request.pop("do"))(**request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class Holder:
    """Models in one runtime, and a clock for the shape that is being timed."""

    def __init__(self) -> None:
        self.models: dict[str, Prepare] = {}
        self.clocks: dict[tuple[int, int, int], Clock] = {}

    def load(self, runtime: str, threads: int, folders: dict[str, str]) -> dict[str, Any]:
        """Hold the models of these folders."""
        for name, folder in folders.items():
            self.models[name] = prepare(runtime, Path(folder), threads)
        return {}

    def time(self, batch: int, steps: int, flushed: int) -> dict[str, Any]:
        """Return milliseconds per call of each model, and how many calls a time is the mean of.

        With cold caches, so many bytes of cache are `flushed` before each call; 0: they are warm.
        """
        key = (batch, steps, flushed)
        if key not in self.clocks:
            warm = self.clocks.get((batch, steps, 0))
            calls = warm.calls if warm else {n: at(batch, steps) for n, at in self.models.items()}
            self.clocks[key] = cold_clock(calls, flushed) if flushed else warm_clock(calls)
        clock = self.clocks[key]
        found = clock.round()  # which begins with another one each time
        times = {name: found[name] for name in self.models}
        return {"milliseconds": times, "repeats": clock.repeats}

    def memory(
        self, runtime: str, threads: int, folder: str, shapes: list[list[int]]
    ) -> dict[str, Any]:
        """Return bytes: before there is a model, at most until it has run, at most while it ran."""
        _import(runtime)
        start = peak_memory()
        at = prepare(runtime, Path(folder), threads)
        before = peak_memory()
        restarted = restart_peak()
        for batch, steps in shapes:
            call = at(batch, steps)
            for _ in range(3):
                call()
        running = peak_memory()
        whole = max(before, running) if before is not None and running is not None else None
        return {"start": start, "peak": whole, "running": running if restarted else None}


def _import(runtime: str) -> None:
    if runtime in ("eager", "compiled"):
        import thinrnn.lab.recipes.language_model.load  # noqa: F401
    else:
        import numpy  # noqa: F401
        import onnxruntime  # noqa: F401


if __name__ == "__main__":
    main()
