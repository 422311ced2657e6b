"""The end of the report: settings, versions, and the command that makes a run again."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from thinrnn.lab.report.parts import Table
from thinrnn.lab.report.read import Run

_SHOWN = ("thinrnn", "recipe", "preset", "settings", "metrics", "command", "seed", "environment")


def differing(runs: Sequence[Run]) -> Table | None:
    """Returns the settings in which several runs differ, None if there are none."""
    rows = [row for row in _rows([_settings(run) for run in runs]) if len(set(row[1:])) > 1]
    return Table("Settings that differ", _head(runs), rows, stacks=True) if rows else None


def configuration(runs: Sequence[Run]) -> list[Table]:
    """Returns settings, versions and further facts of all runs."""
    parts = {
        "Settings": [_flat(run.config.get("settings")) for run in runs],
        "Versions and machine": [_versions(run) for run in runs],
    }
    for key in dict.fromkeys(key for run in runs for key in run.config if key not in _SHOWN):
        parts[key.replace("_", " ").capitalize()] = [_flat(run.config.get(key)) for run in runs]
    tables = [
        Table(title, _head(runs), _rows(columns), stacks=len(runs) > 1)
        for title, columns in parts.items()
    ]
    return [table for table in tables if table.rows]


def _head(runs: Sequence[Run]) -> list[str]:
    return ["", *(run.name for run in runs)] if len(runs) > 1 else []


def _rows(columns: Sequence[Mapping[str, str]]) -> list[list[str]]:
    keys = dict.fromkeys(key for column in columns for key in column)
    return [[key, *(column.get(key, "") for column in columns)] for key in keys]


def _settings(run: Run) -> dict[str, str]:
    preset = run.config.get("preset")
    return ({"preset": str(preset)} if preset else {}) | _flat(run.config.get("settings"))


def _versions(run: Run) -> dict[str, str]:
    named = {"thinrnn": run.config.get("thinrnn"), "seed": run.config.get("seed")}
    found = {key: _text(value) for key, value in named.items() if value is not None}
    return found | _flat(run.config.get("environment"))


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Returns nested settings as one level of dotted names."""
    if not isinstance(value, Mapping):
        return {prefix: _text(value)} if prefix else {}
    flat: dict[str, str] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}.{key}" if prefix else str(key))
    return flat


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
