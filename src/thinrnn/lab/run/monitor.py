"""What is updated while a run trains: the report and TensorBoard."""

import math
import time
from collections.abc import Callable
from typing import Any

from thinrnn.lab.run.folder import RunFolder
from thinrnn.lab.run.progress import Progress


class Monitor:
    """Passes every event of a run to TensorBoard, if that is there, and now and then has `report`
    write the report; where that fails, `progress` gets a line and training continues."""

    def __init__(
        self,
        run: RunFolder,
        progress: Progress,
        report: Callable[[], object],
        *,
        tensorboard: bool = True,
    ) -> None:
        self.progress = progress
        self.report = report
        self.written = time.monotonic()
        self.pause = 5.0
        self.failure = ""
        self.board = _board(run) if tensorboard else None

    def __call__(self, event: dict[str, Any]) -> None:
        if self.board is not None:
            self._tell_board(event)
        if event["event"] == "epoch" and time.monotonic() - self.written > self.pause:
            self.write_report()

    def write_report(self) -> None:
        """Rewrite the report now; a failure is printed once, and training continues."""
        began = time.monotonic()
        try:
            self.report()
        except Exception as error:  # hours of training matter more than a picture of them
            if self.failure != str(error):
                self.progress.line(f"no report: {error}")
            self.failure, self.pause = str(error), math.inf
            return
        self.written = time.monotonic()
        self.pause = max(5.0, 50 * (self.written - began))  # a fiftieth of the time at most

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
