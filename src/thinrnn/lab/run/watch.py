"""Watching a run from outside: the report is rewritten and TensorBoard told as it goes on."""

import math
import time
from typing import Any

from thinrnn.lab.run.folder import RunFolder
from thinrnn.lab.run.progress import Progress


class Watch:
    """Is called with every event; the report takes at most a small part of the time."""

    def __init__(self, run: RunFolder, progress: Progress, *, tensorboard: bool = True) -> None:
        self.run = run
        self.progress = progress
        self.written = time.monotonic()
        self.pause = 5.0
        self.board = _board(run) if tensorboard else None

    def __call__(self, event: dict[str, Any]) -> None:
        if self.board is not None:
            self._tell_board(event)
        if event["event"] == "epoch" and time.monotonic() - self.written > self.pause:
            try:
                self.write_report()
            except Exception as error:  # hours of training matter more than a picture of them
                self.progress.line(f"the report could not be written, training goes on: {error}")
                self.pause = math.inf

    def write_report(self) -> None:
        """Rewrite report.html now."""
        from thinrnn.lab.report import write_report

        began = time.monotonic()
        write_report([self.run.path])
        self.written = time.monotonic()
        self.pause = max(5.0, 50 * (self.written - began))

    def _tell_board(self, event: dict[str, Any]) -> None:
        for name, value in event.items():
            if name in ("step", "epoch") or not isinstance(value, int | float):
                continue
            self.board.add_scalar(f"{event['phase']}/{name}", value, event["step"])  # type: ignore[union-attr]
        for group, kept in event.get("kept", {}).items():
            self.board.add_scalar(f"{event['phase']}/kept/{group}", kept, event["step"])  # type: ignore[union-attr]

    def close(self) -> None:
        if self.board is not None:
            self.board.close()


def _board(run: RunFolder) -> Any:
    """Return TensorBoard's writer, or None where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run.path / "tensorboard"))
