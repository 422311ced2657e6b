"""The other end of a worker."""

import json
import os
import subprocess
import sys
from types import TracebackType
from typing import Any

from thinrnn.errors import ThinRNNError


class BenchError(ThinRNNError, RuntimeError):
    """A model does not run in a runtime."""


class Child:
    """A process of its own that holds models and times them when asked to."""

    def __init__(self, threads: int) -> None:
        count = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        path = os.pathsep.join(part for part in sys.path if part)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "thinrnn.bench.worker"],
            env={**os.environ, **count, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Return the answer of the process; what goes wrong there is raised here."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise BenchError(f"the process ended with {self.process.wait()}, out of memory perhaps")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchError(answer["error"])
        return answer

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
