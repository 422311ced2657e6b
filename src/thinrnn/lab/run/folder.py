"""The run folder: one experiment on the disk.

config.json      the settings, the data, and where the run happened
metrics.jsonl    what happened, step by step
checkpoints/     the state from which a run can be resumed
model/           the small model
dense.json, small.json, control.json, pattern.json, report.html
"""

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thinrnn._files import read_json
from thinrnn.errors import RunError
from thinrnn.lab.command import command
from thinrnn.lab.run.errors import InputError, StorageError
from thinrnn.lab.run.files import remove_folder, storage, write_json
from thinrnn.lab.run.metrics import MetricsFile
from thinrnn.lab.run.schemas import Config, SummaryFile

if TYPE_CHECKING:
    from thinrnn.lab.run.checkpoint import Checkpoints

FORMAT = 2  # of the checkpoints; a run that was begun with another one cannot go on
KIND_OF = {"dense": "dense", "gated": "small", "control": "control"}  # what a phase ends in
MODELS = {"dense": "dense", "small": "model", "control": "control"}  # the folder of each kind


class RunFolder:
    """A run that exists on the disk."""

    is_written_here = True  # and not by another process

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self._read_config()

    @property
    def is_readable_here(self) -> bool:
        """Whether this version of thinrnn can read the run's checkpoints."""
        return self.config.get("format") == FORMAT

    @functools.cached_property
    def checkpoints(self) -> "Checkpoints":
        """The checkpoints of this run."""
        from thinrnn.lab.run.checkpoint import (
            Checkpoints,  # brings torch, which `list` does without
        )

        return Checkpoints(self.path / "checkpoints")

    @classmethod
    def create(cls, path: str | Path, config: dict[str, Any]) -> "RunFolder":
        """Make a new run folder; a folder that holds something already is refused."""
        path = Path(path)
        if (path / "config.json").exists():
            raise InputError(
                f"{path} holds a run already: continue it with "
                f"'{command('train', '--resume', path)}', or choose another folder with --out."
            )
        # what is left where a process died, or the disk was full, before there was a run
        leftovers = [*path.glob(".config.json.*")] if path.is_dir() else []
        if path.exists() and (not path.is_dir() or {*path.iterdir()} - {*leftovers}):
            raise InputError(f"{path} is not an empty folder: choose another with --out.")
        with _chosen():
            with storage(path):
                path.mkdir(parents=True, exist_ok=True)
                for leftover in leftovers:
                    leftover.unlink()
            write_json(path / "config.json", config)
        return cls(path)

    def _read_config(self) -> dict[str, Any]:
        file = self.path / "config.json"
        if not os.path.lexists(file):
            raise RunError(
                f"{self.path} is not a run folder (it has no config.json); "
                f"'{command('list')}' shows the runs."
            )
        return read_json(file, Config, RunError).table()

    def metrics(self) -> MetricsFile:
        """Return the open metrics file; a torn last line is cut off."""
        return MetricsFile(self.path / "metrics.jsonl")

    def summary(self, kind: str) -> dict[str, Any] | None:
        """Return dense.json, small.json or control.json, or None while it is not there."""
        file = self.path / f"{kind}.json"
        return read_json(file, SummaryFile, RunError).table() if os.path.lexists(file) else None

    def summaries(self) -> dict[str, dict[str, Any]]:
        """Return the summaries that are there."""
        found = {kind: self.summary(kind) for kind in MODELS}
        return {kind: summary for kind, summary in found.items() if summary is not None}

    def write_summary(self, kind: str, summary: dict[str, Any]) -> None:
        """Write dense.json, small.json or control.json: from then on that phase is over."""
        with storage(self.path):
            (self.path / "config.json").stat()  # a folder that is gone must not come back by halves
        write_json(self.path / f"{kind}.json", {"kind": kind, **summary})

    def clear_leftovers(self) -> None:
        """Remove what a killed process left half written; such names begin with a dot."""
        for path in sorted(self.path.rglob(".*")):
            if path.is_dir():
                remove_folder(path)
            elif path.name != ".lock":
                path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process from writing to the same run; the lock dies with the process."""
        try:
            import fcntl
        except ImportError:  # no such locks on Windows
            yield
            return
        with _chosen(), storage(self.path):
            file = (self.path / ".lock").open("w")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another process is writing to {self.path}: wait for it."
                ) from None
            yield


@contextlib.contextmanager
def _chosen() -> Iterator[None]:
    """Blame the choice of the folder where the first thing written to it fails."""
    try:
        yield
    except StorageError as error:
        raise InputError(str(error)) from error


def is_running(folder: Path) -> bool:
    """Whether a process is writing to a run; True if that cannot be known."""
    try:
        import fcntl

        with (folder / ".lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (ImportError, OSError):  # no such locks on Windows, no such file, or locked
        return True
    return False


def free_name(folder: Path) -> Path:
    """Return `folder`, or `folder-2`, `folder-3` ... whichever is not there yet."""
    number, path = 1, folder
    while path.exists():
        number += 1
        path = folder.with_name(f"{folder.name}-{number}")
    return path


def find_runs(root: Path) -> list[Path]:
    """Return the run folders in `root` and one level below, by name."""
    if not root.is_dir():
        return []
    candidates = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    return [path for path in candidates if (path / "config.json").exists()]
