"""Files that are written completely or not at all."""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from thinrnn._files import write_safely
from thinrnn.lab.run.errors import StorageError


@contextlib.contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turn a failure to write below `path` into a StorageError with a plain message."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        why = {
            errno.ENOSPC: "the disk is full; free some space",
            errno.EDQUOT: "the disk quota is used up; free some space",
            errno.EROFS: "the file system is read-only; choose another folder or make it writable",
            errno.EACCES: "permission denied; choose another folder or make it writable",
            errno.ENOENT: "its folder is gone; restore it, or mount it again",
        }.get(error.errno or 0, error.strerror or str(error))
        rest = "" if error.errno == errno.ENOENT else " What was written before is still there."
        raise StorageError(f"cannot write {path}: {why}.{rest}") from error


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder durable."""
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on the disk; not atomic by itself."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_atomic(path: Path, data: bytes | str) -> None:
    """Replace a file at once: a reader, or a crash, sees the old one or the new one."""
    content = data.encode() if isinstance(data, str) else data
    with storage(path):
        write_safely(path, lambda temporary: temporary.write_bytes(content))
        sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically."""
    write_atomic(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def remove_folder(folder: Path) -> None:
    """Remove a folder if it can be removed; what stays is harmless."""
    shutil.rmtree(folder, ignore_errors=True)
