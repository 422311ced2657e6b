"""The progress of a run: rich's bar on a terminal, plain lines elsewhere.

The plain lines are written by hand: rich shows nothing of a bar where there is no terminal.
"""

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any, TextIO

from thinrnn.lab.printable import printable


class Progress:
    """Where a recipe reports its progress; this one shows nothing of it."""

    def start(self, title: str, total: int, done: int = 0, later: float = 0) -> None:
        """Begin a task of `total` steps, of which `done` are done already.

        What comes after it takes as long as `later` more steps; it is part of the time left.
        """

    def step(self, done: int, **shown: str) -> None:
        """Report the number of finished steps; `shown` are texts to print beside it."""

    def line(self, text: str) -> None:
        """Print a line that stays on the screen."""

    def end(self) -> None:
        """Leave the terminal as it was."""


class Silent(Progress):
    """No output, as chosen."""


class Plain(Progress):
    """Lines for logs and pipes; after `every` seconds without one, how far it is."""

    def __init__(self, out: TextIO, every: float = 60.0) -> None:
        self.out, self.every = out, every
        self.title, self.total, self.first, self.later = "", 0, 0, 0.0
        self.began = self.printed = time.monotonic()

    def start(self, title: str, total: int, done: int = 0, later: float = 0) -> None:
        self.title, self.total, self.first, self.later = title, total, done, later
        self.began = self.printed = time.monotonic()

    def step(self, done: int, **shown: str) -> None:
        now = time.monotonic()
        if now - self.printed < self.every:
            return
        steps = self.total - done + self.later
        left = time_left(now - self.began, done - self.first, steps)
        details = "  ".join(f"{key} {value}" for key, value in shown.items())
        self.line(f"{self.title} {done}/{self.total}  {details}  {left} left")

    def line(self, text: str) -> None:
        self.printed = time.monotonic()
        print(printable(text), file=self.out, flush=True)


class Bar(Progress):
    """A live bar drawn by rich."""

    def __init__(self, out: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
        from rich.progress import Progress as RichProgress
        from rich.text import Text

        class TimeLeft(ProgressColumn):
            """The time for this task and what comes later, at the mean speed of this task."""

            max_refresh = 0.5

            def render(self, task: Task) -> Text:
                left = (task.remaining or 0) + task.fields["later"]
                return Text(time_left(1.0, task.speed or 0, left), style="progress.remaining")

        self.rich = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[shown]}"),
            TimeLeft(),
            console=Console(file=out),
            transient=True,
            # Of all updates: by default those of 30 seconds count, in which there may be none.
            speed_estimate_period=math.inf,
        )
        self.task: Any = None
        self.details = ""

    def start(self, title: str, total: int, done: int = 0, later: float = 0) -> None:
        if self.task is not None:
            self.rich.remove_task(self.task)
        self.details = ""
        self.task = self.rich.add_task(title, total=total, completed=done, shown="", later=later)
        self.rich.start()

    def step(self, done: int, **shown: str) -> None:
        if shown:
            self.details = "  ".join(f"{key} {value}" for key, value in shown.items())
        self.rich.update(self.task, completed=done, shown=self.details)

    def line(self, text: str) -> None:
        self.rich.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def end(self) -> None:
        self.rich.stop()


@contextlib.contextmanager
def shown_on(out: TextIO) -> Iterator[Progress]:
    """Yield a bar if `out` is a terminal, else plain lines."""
    progress = Bar(out) if out.isatty() else Plain(out)
    try:
        yield progress
    finally:
        progress.end()


def time_left(spent: float, done: float, left: float) -> str:
    """Return the time for `left` steps at the speed so far, as m:ss or h:mm:ss."""
    if done <= 0:
        return "-:--"
    seconds = int(spent / done * left)
    minutes, hours = seconds // 60, seconds // 3600
    shown = f"{hours}:{minutes % 60:02d}" if hours else f"{minutes}"
    return f"{shown}:{seconds % 60:02d}"
