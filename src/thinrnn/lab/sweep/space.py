"""The space of a sweep: which settings vary and between what, read from a TOML file.

[lr]              [shape]
low = 1e-3        choices = [
high = 1e-2           { embedding = 100, hidden = [100, 100] },
log = true            { embedding = 200, hidden = [200, 200] },
                  ]
"""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinrnn._files import read_bytes
from thinrnn.lab.recipes.settings import TrainingSettings
from thinrnn.lab.run.errors import InputError

FIXED = ("phases", "device", "train", "valid", "test")  # trials could not be compared
EXAMPLE = (
    "write low and high, as in 'low = 0.1' and 'high = 0.5', or choices, as in 'choices = [1]'"
)
RANGE = {"low", "high", "log", "step"}


@dataclass(frozen=True)
class Range:
    """A setting between two numbers; whole ones if both are."""

    low: float
    high: float
    log: bool = False
    step: float | None = None


@dataclass(frozen=True)
class OneOf:
    """One of several values; the settings that each of them stands for, by a label."""

    settings: dict[str, dict[str, Any]]


Space = dict[str, Range | OneOf]


def read_table(path: Path) -> dict[str, Any]:
    """Return what a TOML file holds."""
    try:
        return tomllib.loads(read_bytes(path, InputError).decode())
    except (ValueError, RecursionError) as error:  # ValueError is that of tomllib and of decode too
        raise InputError(f"{path} is not valid TOML: {error}.") from None


def parse_space(table: dict[str, Any], settings: TrainingSettings) -> Space:
    """Return the space that a table describes, each of its values checked as a setting.

    Raises:
        InputError: The table is no space, or a value is not allowed.
    """
    if not table:
        raise InputError(f"the space is empty: name a setting, as in [lr], and {EXAMPLE}.")
    space = {name: _dimension(name, entry) for name, entry in table.items()}
    for name, dimension in space.items():
        for values in _extremes(name, dimension):
            for setting in values:
                if setting in FIXED:
                    raise InputError(f"{setting} is the same in all trials: give it with --set.")
            try:
                settings.replaced(**values)
            except InputError as error:
                raise InputError(f"[{name}] of the space: {error}") from None
    return space


def _dimension(name: str, entry: Any) -> Range | OneOf:
    if not isinstance(entry, dict):
        raise InputError(f"{name} of the space is no table: write [{name}] and below it {EXAMPLE}.")
    keys = set(entry)
    if keys == {"choices"}:
        return _choice(name, entry["choices"])
    if not {"low", "high"} <= keys <= RANGE:
        wrong = ", ".join(sorted(keys - RANGE)) or "neither low and high nor choices"
        raise InputError(f"[{name}] of the space has {wrong}: {EXAMPLE}.")
    low, high, step = entry["low"], entry["high"], entry.get("step")
    log = entry.get("log", False)
    if not _is_number(low) or not _is_number(high) or not low < high:
        raise InputError(f"[{name}] of the space: low and high must be numbers, low the smaller.")
    if log not in (True, False) or (log and (low <= 0 or step is not None)):
        raise InputError(f"[{name}] of the space: log = true needs low above 0 and no step.")
    if step is not None and not (_is_number(step) and 0 < step <= high - low):
        raise InputError(f"[{name}] of the space: step must be a number up to high - low.")
    return Range(low, high, bool(log), step)


def _choice(name: str, choices: Any) -> OneOf:
    if not isinstance(choices, list) or len(choices) < 2:
        raise InputError(f"[{name}] of the space: choices must be a list of two values or more.")
    settings = {}
    for value in choices:
        label = value if isinstance(value, str) else json.dumps(value)
        settings[label] = dict(value) if isinstance(value, dict) else {name: value}
    if len(settings) < len(choices):
        raise InputError(f"[{name}] of the space: two of its choices are the same.")
    return OneOf(settings)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _extremes(name: str, dimension: Range | OneOf) -> list[dict[str, Any]]:
    if isinstance(dimension, OneOf):
        return list(dimension.settings.values())
    return [{name: dimension.low}, {name: dimension.high}]


def suggest(trial: Any, space: Space) -> dict[str, Any]:
    """Return the settings that an Optuna trial tries."""
    values: dict[str, Any] = {}
    for name, d in space.items():
        if isinstance(d, OneOf):
            values |= d.settings[trial.suggest_categorical(name, list(d.settings))]
        elif isinstance(d.low, int) and isinstance(d.high, int) and isinstance(d.step, int | None):
            values[name] = trial.suggest_int(name, d.low, d.high, log=d.log, step=d.step or 1)
        else:
            values[name] = trial.suggest_float(name, d.low, d.high, log=d.log, step=d.step)
    return values
