"""A disk that fails, or a process that dies, at the n-th thing that it does to a folder.

A thing is a write, an fsync, a rename, a removal, or the making of a file or a folder. Before each
of them `Faults` counts; when it is the turn of one, `Faults` acts:

full     it fails with ENOSPC, and so does every later one: a disk that stays full
broken   it alone fails, with EIO
killed   a write is done by half, and the process is killed: for a process of its own
"""

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import safetensors.torch

Kind = Literal["full", "broken", "killed"]
CALLS = ("fsync", "replace", "rename", "mkdir", "rmdir", "unlink", "remove", "truncate", "chmod")


class Faults:
    """Counts what is done to a folder, and acts at the n-th time."""

    def __init__(self, folder: Path, kind: Kind, at: int | None) -> None:
        self.folder, self.kind, self.at = str(folder), kind, at
        self.count = 0

    def concerns(self, path: Any) -> bool:
        """Whether a path, or an open file, is in the folder."""
        try:
            if isinstance(path, int):
                path = os.readlink(f"/proc/self/fd/{path}")
            return os.fspath(path).startswith(self.folder)
        except (OSError, TypeError):
            return False

    def next(self, by_half: Callable[[], object] = lambda: None) -> None:
        """Count, and fail if it is time."""
        number, self.count = self.count, self.count + 1
        if self.at is None or number < self.at:
            return
        if self.kind == "killed":
            by_half()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "full" or number == self.at:
            code = errno.ENOSPC if self.kind == "full" else errno.EIO
            raise OSError(code, os.strerror(code))


@contextmanager
def faults(folder: Path, kind: Kind = "full", at: int | None = None) -> Iterator[Faults]:
    """Let the n-th thing done to a folder fail; without `at` they are counted alone."""
    state = Faults(folder, kind, at)

    class FaultyFile(io.FileIO):
        def write(self, data: Any) -> int:
            state.next(lambda: io.FileIO.write(self, bytes(data)[: len(data) // 2]))
            return super().write(data)

    real_open, real_os_open = io.open, os.open
    real_save = safetensors.torch.serialize_file

    def faulty_open(file: Any, mode: str = "r", buffering: int = -1, *more: Any, **named: Any):
        if not set(mode) & set("wax+") or not state.concerns(file):
            return real_open(file, mode, buffering, *more, **named)
        if not os.path.exists(file):
            state.next()
        raw = FaultyFile(file, mode.replace("b", "").replace("t", ""))
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *more, **named)

    def faulty_os_open(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT and state.concerns(path):
            state.next()
        return real_os_open(path, flags, *more, **named)

    def faulty_save(tensors: Any, path: Any, *more: Any, **named: Any) -> None:
        def half() -> None:
            real_save(tensors, path, *more, **named)
            os.truncate(path, os.path.getsize(path) // 2)

        try:
            if state.concerns(path):
                state.next(half)
        except OSError as error:  # what safetensors makes of it
            reason = f"I/O error: {error.strerror} (os error {error.errno})"
            raise safetensors.SafetensorError(reason) from None
        real_save(tensors, path, *more, **named)

    def faulty(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *more: Any, **named: Any) -> Any:
            if state.concerns(path):
                state.next()
            return real(path, *more, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, faulty(getattr(os, name)))
        patch.setattr(os, "open", faulty_os_open)
        patch.setattr(io, "open", faulty_open)
        patch.setattr(builtins, "open", faulty_open)
        patch.setattr(safetensors.torch, "serialize_file", faulty_save)
        yield state
