"""Writing files so that a crash leaves the old ones or the new ones, never half of one."""

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

Write = Callable[[Path], object]


def write_safely(path: Path, write: Write) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step."""
    write_together({path: write})


def write_together(writes: Mapping[Path, Write]) -> None:
    """Write several files; none of them is put in place before all of them are complete."""
    temporary: dict[Path, Path] = {}
    try:
        for path, write in writes.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            os.close(handle)
            temporary[path] = Path(name)
            write(temporary[path])
            with open(name, "rb+") as file:
                os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~_umask())
        for path, complete in temporary.items():
            os.replace(complete, path)
    except BaseException:
        for left in temporary.values():
            left.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)  # it can only be read by setting it
    os.umask(mask)
    return mask
