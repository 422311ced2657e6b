"""A run that another process writes: this one reads it, and its own writes go nowhere."""

import contextlib
from pathlib import Path
from typing import Any

from thinrnn.lab.run.checkpoint import Checkpoints
from thinrnn.lab.run.folder import RunFolder


class FollowedRun(RunFolder):
    """A run folder whose methods that write do nothing."""

    is_written_here = False

    @property
    def checkpoints(self) -> Checkpoints:
        return ReadCheckpoints(self.path / "checkpoints")

    def metrics(self) -> Any:
        return NoMetrics()

    def write_summary(self, kind: str, summary: dict[str, Any]) -> None: ...

    def clear_leftovers(self) -> None: ...

    def locked(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()


class ReadCheckpoints(Checkpoints):
    """Checkpoints that are only read."""

    def save(self, name: str, state: Any) -> Path:
        return self.folder

    def drop(self, name: str) -> None: ...


class NoMetrics:
    """A metrics file that nobody writes."""

    def write(self, event: dict[str, Any]) -> None: ...

    def position(self) -> int:
        return 0

    def cut(self, position: int) -> None: ...

    def cut_from(self, key: str, value: str) -> None: ...

    def close(self) -> None: ...
