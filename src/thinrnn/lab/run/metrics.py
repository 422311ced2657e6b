"""Measured figures, and metrics.jsonl: one JSON object a line, only ever appended to."""

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from thinrnn._files import MOST_BYTES, open_regular, parse_json
from thinrnn.errors import RunError
from thinrnn.lab.run.files import storage
from thinrnn.lab.run.schemas import Event

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Measurement:
    """A measured figure: its name, its value, and which way is better."""

    name: str
    value: float
    better: Better


class MetricsFile:
    """Appends events to a file; `cut` brings it back to where a checkpoint was written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with storage(path):
            self.file = path.open("ab")
        self.cut(_whole_lines(path))

    def write(self, event: dict[str, Any]) -> None:
        """Append one event; readers see it at once."""
        with storage(self.path):
            self.file.write(json.dumps(event, ensure_ascii=False).encode() + b"\n")
            self.file.flush()

    def position(self) -> int:
        """Return the size of the file, once all of it is on the disk."""
        with storage(self.path):
            self.file.flush()
            os.fsync(self.file.fileno())
        return self.file.tell()

    def cut(self, position: int) -> None:
        """Drop everything after a position; a file that is shorter stays as it is."""
        with storage(self.path):
            if self.path.stat().st_size > position:
                self.file.truncate(position)
            self.file.seek(0, os.SEEK_END)

    def cut_from(self, key: str, value: str) -> None:
        """Drop everything from the first event on that has this value."""
        position = 0
        for event, size in _lines(self.path):
            if event.get(key) == value:
                self.cut(position)
                return
            position += size

    def close(self) -> None:
        self.file.close()


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a file; a last line that is torn is left out."""
    if os.path.lexists(path):
        for event, _ in _lines(path):
            yield event


def _lines(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each whole line as an event, and how many bytes it takes."""
    with open_regular(path, RunError) as file:
        for number in itertools.count(1):
            line = file.readline(MOST_BYTES)
            if not line.endswith(b"\n"):
                if len(line) == MOST_BYTES:
                    raise RunError(f"'{path}' is damaged: line {number} is too long.")
                return
            event = parse_json(line, Event, f"{path}, line {number}", RunError)
            yield event.table(), len(line)


def _whole_lines(path: Path) -> int:
    """Return where the last whole line ends."""
    return path.read_bytes().rfind(b"\n") + 1
