"""Ctrl-C and SIGTERM as a polite request: the loop ends its step, writes a checkpoint and stops."""

import signal
import threading
from types import FrameType
from typing import Any


class StopRequest:
    """Inside `with`, `requested` becomes true on the first signal; a second one stops at once."""

    def __init__(self) -> None:
        self.requested = False
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopRequest":
        # Only the main thread may set handlers; elsewhere the signals mean what they always do.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
