"""The other end of a worker."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from types import TracebackType
from typing import Any

from thinrnn.errors import ThinRNNError

PATIENCE = 600.0  # seconds; compiling a large model on a busy machine takes minutes
ENDING = 30.0  # seconds that a process may take to end


class BenchError(ThinRNNError, RuntimeError):
    """A model does not run in a runtime."""


class Child:
    """A process of its own that holds models and times them when asked to."""

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

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Return the answer of the process; what goes wrong there is raised here."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self.process.stdin.flush()
        try:
            line = self.answers.get(timeout=self.patience)
        except queue.Empty:
            raise BenchError(
                f"no answer to '{do}' within {self.patience:g} s: the machine is too busy, or the "
                "model too large for it; close other programs, or leave this runtime out."
            ) from None
        if not line:
            raise BenchError(f"the process ended {self._why()}")
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

    def _why(self) -> str:
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.process.wait(timeout=ENDING)
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace").strip().splitlines()
        return f"with {code}: {said[-1][:300] if said else 'out of memory perhaps'}"

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
