"""Files: written so that a crash leaves the old or the new ones; read without trusting them."""

import math
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from thinrnn.errors import FolderError, ThinRNNError

if TYPE_CHECKING:  # pydantic is imported where a file is read, never by `import thinrnn`
    from pydantic import BaseModel, ValidationError

    M = TypeVar("M", bound=BaseModel)

R = TypeVar("R")
Write = Callable[[Path], object]
MOST_BYTES = 1 << 28  # of a JSON file, or of one line of metrics.jsonl
SHOWN = 60  # characters of a wrong value


def open_regular(
    path: Path, error: type[ThinRNNError] = FolderError, *, most: float = math.inf
) -> BufferedReader:
    """Return a file open for reading; what is not a regular file is refused, not waited for.

    So is one of more than `most` bytes.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise error(f"cannot read '{path}': {reason}.") from None
    about = os.fstat(handle)
    is_regular = stat.S_ISREG(about.st_mode)
    if is_regular and about.st_size <= most:
        return open(handle, "rb")
    os.close(handle)
    if not is_regular:
        raise error(f"'{path}' is not a regular file: put the file itself there.")
    raise error(f"'{path}' is larger than {most:,} bytes, the limit for such a file.")


def read_bytes(
    path: Path, error: type[ThinRNNError] = FolderError, *, most: int = MOST_BYTES
) -> bytes:
    """Return what a file holds; too large a one is refused before it is read."""
    try:
        with open_regular(path, error, most=most) as file:
            return file.read(most)
    except OSError as problem:
        raise error(f"cannot read '{path}': {problem.strerror}.") from None


def read_json(path: Path, schema: "type[M]", error: type[ThinRNNError] = FolderError) -> "M":
    """Return what a JSON file holds, checked by a pydantic model before anything is built of it.

    This is the one way to read a JSON file that somebody else may have written. pydantic's parser
    also limits how deep values may be nested.

    Args:
        path: The file.
        schema: What it must hold.
        error: The class of the error.

    Raises:
        ThinRNNError: One line that names the file, the field and what was expected.
    """
    return parse_json(read_bytes(path, error), schema, path, error)


def parse_json(
    data: bytes, schema: "type[M]", where: object, error: type[ThinRNNError] = FolderError
) -> "M":
    """Return what a JSON text holds; `where` names it in the error."""
    from pydantic import ValidationError

    try:
        return schema.model_validate_json(data)
    except ValidationError as problem:
        raise error(f"'{where}' is damaged: {what_is_wrong(problem)}.") from None


def what_is_wrong(problem: "ValidationError") -> str:
    """Return the first wrong field, what it should be and what was found there."""
    first = problem.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        return f"it is not JSON: {first['msg'].partition(': ')[2]}"
    field = ".".join(map(str, first["loc"])) or "the file"
    expected = first["msg"].removeprefix("Value error, ")
    expected = expected[:1].lower() + expected[1:]
    if first["type"] in ("missing", "value_error"):
        return f"{field}: {expected}"
    return f"{field}: {expected}, found {_shown(first['input'])}"


def _shown(value: Any) -> str:
    text = ascii(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def write_safely(path: Path, write: Callable[[Path], R]) -> R:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step."""
    found: list[R] = []
    write_together({path: lambda temporary: found.append(write(temporary))})
    return found[0]


def write_together(writes: Mapping[Path, Write]) -> None:
    """Write several files; none of them is put in place before all of them are complete."""
    temporary: dict[Path, Path] = {}
    try:
        for path, write in writes.items():
            if path.exists() and not path.is_file():  # a device would be replaced by a file
                raise FolderError(f"'{path}' is not a regular file: choose another name.")
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


def memory() -> float:
    """Return the bytes of memory of this machine, infinite where that cannot be told."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no such call
        return math.inf


def cache_folder() -> Path:
    """Return the user's cache folder; not pooch's, because that needs an extra."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thinrnn"
