"""What `find_groups` is doing, on one line of a terminal, if it takes more than two seconds."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

PATIENCE = 2.0  # seconds
WIDTH = 79

_current: ContextVar["StatusLine | None"] = ContextVar("line", default=None)


class StatusLine:
    """A line that is written over, at most five times a second."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.next = self.start + PATIENCE
        self.is_shown = False

    def write(self, text: str) -> None:
        now = time.monotonic()
        if now >= self.next and sys.stderr.isatty():
            line = f"find_groups: {now - self.start:.0f} s, {text}"[:WIDTH]
            sys.stderr.write(f"\r{line:<{WIDTH}}")
            sys.stderr.flush()
            self.next, self.is_shown = now + 0.2, True

    def clear(self) -> None:
        if self.is_shown:
            sys.stderr.write("\r" + " " * WIDTH + "\r")
            sys.stderr.flush()


@contextmanager
def shown() -> Iterator[None]:
    """Show what `tell` says, and clear the line at the end."""
    line = StatusLine()
    token = _current.set(line)
    try:
        yield
    finally:
        _current.reset(token)
        line.clear()


def tell(text: str) -> None:
    """Say what is being done."""
    line = _current.get()
    if line is not None:
        line.write(text)
