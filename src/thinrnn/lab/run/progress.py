"""The progress of a run: a bar on a terminal, plain lines elsewhere."""

import math
import sys
import time
from types import TracebackType
from typing import Any, Protocol, TextIO

from thinrnn.lab.printable import printable


class Progress(Protocol):
    """Where a recipe reports its progress."""

    def start(self, title: str, total: int, done: int = 0) -> None:
        """Begin a task of `total` steps, of which `done` are done already."""

    def step(self, done: int, **shown: str) -> None:
        """Report the number of finished steps; `shown` are texts to print beside it."""

    def line(self, text: str) -> None:
        """Print a line that stays on the screen."""

    def end(self) -> None:
        """Leave the terminal as it was."""


class Silent:
    """No output."""

    def start(self, title: str, total: int, done: int = 0) -> None: ...

    def step(self, done: int, **shown: str) -> None: ...

    def line(self, text: str) -> None: ...

    def end(self) -> None: ...


class Plain:
    """Lines for logs and pipes; after `every` seconds without one, how far it is."""

    def __init__(self, out: TextIO, every: float = 60.0) -> None:
        self.out, self.every = out, every
        self.title, self.total, self.first = "", 0, 0
        self.began = self.printed = time.monotonic()

    def start(self, title: str, total: int, done: int = 0) -> None:
        self.title, self.total, self.first = title, total, done
        self.began = self.printed = time.monotonic()

    def step(self, done: int, **shown: str) -> None:
        now = time.monotonic()
        if now - self.printed < self.every:
            return
        left = time_left(now - self.began, done - self.first, self.total - done)
        details = "  ".join(f"{key} {value}" for key, value in shown.items())
        self.line(f"{self.title} {done}/{self.total}  {details}  {left} left")

    def line(self, text: str) -> None:
        self.printed = time.monotonic()
        print(printable(text), file=self.out, flush=True)

    def end(self) -> None: ...


class Bar:
    """A live bar drawn by rich."""

    def __init__(self, out: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self.rich = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[shown]}"),
            TimeRemainingColumn(),
            console=Console(file=out),
            transient=True,
            # Of all updates: by default those of 30 seconds count, in which there may be none.
            speed_estimate_period=math.inf,
        )
        self.task: Any = None
        self.details = ""

    def start(self, title: str, total: int, done: int = 0) -> None:
        if self.task is not None:
            self.rich.remove_task(self.task)
        self.details = ""
        self.task = self.rich.add_task(title, total=total, completed=done, shown="")
        self.rich.start()

    def step(self, done: int, **shown: str) -> None:
        if shown:
            self.details = "  ".join(f"{key} {value}" for key, value in shown.items())
        self.rich.update(self.task, completed=done, shown=self.details)

    def line(self, text: str) -> None:
        self.rich.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def end(self) -> None:
        self.rich.stop()


class Shown:
    """`with Shown() as progress` gives a bar on a terminal and plain lines elsewhere."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = sys.stdout if out is None else out

    def __enter__(self) -> Progress:
        self.progress: Progress = Bar(self.out) if self.out.isatty() else Plain(self.out)
        return self.progress

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.end()


def time_left(spent: float, done: int, left: int) -> str:
    """Return the time for `left` steps at the speed so far, as m:ss or h:mm:ss."""
    if done <= 0:
        return "-:--"
    seconds = int(spent / done * left)
    minutes, hours = seconds // 60, seconds // 3600
    if hours:
        return f"{hours}:{minutes % 60:02d}:{seconds % 60:02d}"
    return f"{minutes}:{seconds % 60:02d}"
