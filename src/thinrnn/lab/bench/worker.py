"""A process that holds models in one runtime and times them on request.

One runtime to a process: their threads and allocators do not disturb each other. ONNX Runtime runs
without torch, so that the memory of its process is that of a program which has the file alone.
`Worker` is the end in the main process; `main` runs in the process itself. Requests and answers are
JSON, one to a line. By hand, because pools of Python do not end a process that hangs, together with
what it has started, and start it with what the main program imports.
"""

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Self

from thinrnn.errors import ThinRNNError
from thinrnn.lab.bench.runtimes import Prepare, import_libraries, prepare
from thinrnn.timing import Clock, cold_clock, warm_clock

PATIENCE = 600.0  # seconds; compiling a large model on a busy machine takes minutes
ENDING = 30.0  # seconds that a process may take to end


class BenchError(ThinRNNError, RuntimeError):
    """A model does not run in a runtime."""


class Worker:
    """A handle on the process; `with` ends it."""

    def __init__(self, threads: int, *, patience: float | None = None) -> None:
        count = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        # compiled in the process itself: no pool of processes that outlives it or waits for it
        count["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        path = os.pathsep.join(part for part in sys.path if part)
        self.patience = PATIENCE if patience is None else patience
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self.process = subprocess.Popen(
            [sys.executable, "-m", "thinrnn.lab.bench.worker"],
            env={**os.environ, **count, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            process_group=0 if os.name == "posix" else None,
        )
        self.answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method of the process's `Holder`; its errors are raised here as BenchError."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"method": method, **arguments}) + "\n")
            self.process.stdin.flush()
        try:
            line = self.answers.get(timeout=self.patience)
        except queue.Empty:
            raise BenchError(
                f"no answer to '{method}' within {self.patience:g} s: the machine is too busy, or "
                "the model too large for it; close other programs, or leave this runtime out."
            ) from None
        if not line:
            raise BenchError(f"the process ended {self._reason()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchError(answer["error"])
        return answer

    def close(self) -> None:
        """End the process, and whatever it has started."""
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # nothing more can be done about it
            self.process.wait(timeout=ENDING)
        for pipe in (self.process.stdin, self.errors):
            with contextlib.suppress(OSError):  # what was written may not have been read
                pipe.close()  # type: ignore[union-attr]

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as answers:
            for line in answers:
                self.answers.put(line)
        self.answers.put("")

    def _reason(self) -> str:
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.process.wait(timeout=ENDING)
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return f"with {code}: {lines[-1][:300] if lines else 'out of memory perhaps'}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Holder:
    """Models in one runtime, and a clock for each shape."""

    def __init__(self) -> None:
        self.models: dict[str, Prepare] = {}
        self.clocks: dict[tuple[int, int, int], Clock] = {}

    def load(self, runtime: str, threads: int, models: dict[str, dict[str, str]]) -> dict[str, Any]:
        """Load models by name."""
        for name, place in models.items():
            self.models[name] = prepare(runtime, threads=threads, **place)
        return {}

    def time(self, batch: int, steps: int, flush: int) -> dict[str, Any]:
        """Return milliseconds per call of each model, and how many calls each figure averages.

        `flush` bytes of cache are overwritten before each call; with 0 the caches are warm.
        """
        key = (batch, steps, flush)
        if key not in self.clocks:
            warm = self.clocks.get((batch, steps, 0))
            calls = warm.calls if warm else {n: at(batch, steps) for n, at in self.models.items()}
            self.clocks[key] = cold_clock(calls, flush) if flush else warm_clock(calls)
        clock = self.clocks[key]
        found = clock.round()  # begins with another model each time
        times = {name: found[name] for name in self.models}
        return {"milliseconds": times, "repeats": clock.repeats}

    def memory(
        self, runtime: str, threads: int, model: dict[str, str], shapes: list[list[int]]
    ) -> dict[str, Any]:
        """Return peak bytes: before the model is loaded, in all, and while it runs."""
        import_libraries(runtime, model["recipe"])
        start = peak_memory()
        at = prepare(runtime, threads=threads, **model)
        loaded = peak_memory()
        restarted = restart_peak()
        for batch, steps in shapes:
            call = at(batch, steps)
            for _ in range(3):
                call()
        running = peak_memory()
        peak = max(loaded, running) if loaded is not None and running is not None else None
        return {"start": start, "peak": peak, "running": running if restarted else None}


def peak_memory() -> int | None:
    """Return the most bytes that this process has had, or None where the system has no figure."""
    with contextlib.suppress(OSError):
        # not getrusage: it also counts what the process was before it ran this program
        status = Path("/proc/self/status").read_text()
        if found := re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE):
            return int(found[1]) * 1024
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def restart_peak() -> bool:
    """Restart the peak from now on; return whether the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    holder = Holder()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(holder, request.pop("method"))(**request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
