"""What commands print: progress, tables, a last line; or one JSON object and nothing else."""

import json
import math
import sys
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import typer

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
from thinrnn.lab.run.progress import Progress, shown_on

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


def progress(as_json: bool) -> AbstractContextManager[Progress]:
    """Return where progress goes: to stderr beside JSON, else to stdout."""
    return shown_on(sys.stderr if as_json else sys.stdout)


def show(result: dict[str, Any], text: str, last: str, *, as_json: bool) -> None:
    """Print a result as JSON, or as text; the last line names what was written and what is next."""
    if as_json:
        print(printable(json.dumps(_plain(result), indent=1, ensure_ascii=False)))
    else:
        print(printable("\n".join(part for part in (text, last) if part)))


def measured_rows(*models: dict[str, Any]) -> list[list[str]]:
    """Return a row for each figure that recipes measure, with a cell for each model."""
    names = {"params": "parameters", "macs": "mult-adds/step"}
    return [
        [names.get(name, name.replace("_", " "))]
        + [f"{m[name]:.3f}" if isinstance(m[name], float) else f"{m[name]:,}" for m in models]
        for name in models[0]
    ]


def exit_if_measured(*models: dict[str, Any]) -> NoReturn:
    """Exit with code 0 if every figure is a number, else with 1."""
    numbers = [value for model in models for value in model.values()]
    raise typer.Exit(0 if all(map(math.isfinite, numbers)) else 1)


def _plain(value: Any) -> Any:
    """Return a value with null for infinities and NaNs, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
