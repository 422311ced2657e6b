"""What commands print: progress, tables, a last line; or one JSON object and nothing else."""

import json
import math
import sys
from typing import Any

from thinrnn.errors import (
    CalibrationError,
    ExampleError,
    FolderError,
    MissingExtraError,
    PlanError,
    RunError,
    TargetError,
    ThinRNNError,
)
from thinrnn.lab.printable import printable
from thinrnn.lab.run.errors import InputError, InterruptedRunError, StorageError
from thinrnn.lab.run.progress import Shown

BAD_INPUT = (
    InputError,
    RunError,
    FolderError,
    PlanError,
    TargetError,
    ExampleError,
    CalibrationError,
    MissingExtraError,
    StorageError,
)


def exit_code(error: ThinRNNError) -> int:
    """Return 2 for errors in what the user gave or in the storage, 130 for Ctrl-C, else 1."""
    if isinstance(error, InterruptedRunError):
        return 130
    return 2 if isinstance(error, BAD_INPUT) else 1


def progress(as_json: bool) -> Shown:
    """Return where progress goes: to stderr beside JSON, else to stdout."""
    return Shown(sys.stderr if as_json else sys.stdout)


def show(result: dict[str, Any], text: str, last: str, *, as_json: bool) -> None:
    """Print a result as JSON, or as text; the last line names what was written and what is next."""
    if as_json:
        print(printable(json.dumps(_plain(result), indent=1, ensure_ascii=False)))
    else:
        print(printable("\n".join(part for part in (text, last) if part)))


def _plain(value: Any) -> Any:
    """Return a value with null for infinities and NaNs, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
