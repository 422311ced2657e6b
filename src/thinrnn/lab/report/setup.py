"""The end of the report: configuration, versions, and the command that makes the run again."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from thinrnn.lab.report.page import paragraph, section, table
from thinrnn.lab.report.read import Run
from thinrnn.lab.report.svg import tag

_SHOWN = ("thinrnn", "recipe", "preset", "settings", "command", "seed", "environment")


def setup(runs: Sequence[Run]) -> str:
    """Returns command, settings and versions of all runs; settings that differ are marked."""
    several = len(runs) > 1
    parts = []
    for run in runs:
        command = run.config.get("command")
        if command:
            title = f"To reproduce {run.name}" if several else "To reproduce"
            parts.append(paragraph(title, "label"))
            # A line may end between words, not after the dashes of an option.
            words = [tag("span", escape(word)) for word in str(command).split(" ")]
            parts.append(tag("pre", tag("code", " ".join(words))))
    parts.append(_table(runs, "Settings", [_flat(run.config.get("settings")) for run in runs]))
    parts.append(_table(runs, "Versions and machine", [_versions(run) for run in runs]))
    others = dict.fromkeys(key for run in runs for key in run.config if key not in _SHOWN)
    for key in others:
        columns = [_flat(run.config.get(key)) for run in runs]
        parts.append(_table(runs, key.replace("_", " ").capitalize(), columns))
    return section("setup", "Configuration", *parts)


def _versions(run: Run) -> dict[str, str]:
    named = {"thinrnn": run.config.get("thinrnn"), "seed": run.config.get("seed")}
    found = {key: _said(value) for key, value in named.items() if value is not None}
    return found | _flat(run.config.get("environment"))


def _table(runs: Sequence[Run], caption: str, columns: Sequence[dict[str, str]]) -> str:
    keys = list(dict.fromkeys(key for column in columns for key in column))
    if not keys:
        return ""
    rows = [[key, *(column.get(key, "") for column in columns)] for key in keys]
    marked = [i for i, row in enumerate(rows) if len(set(row[1:])) > 1]
    head = ["", *(run.name for run in runs)] if len(runs) > 1 else []
    class_ = "settings" if head else "settings single"
    return paragraph(caption, "label") + table(
        head, rows, caption=caption, class_=class_, marked=marked
    )


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Returns nested settings as one level of dotted names."""
    if not isinstance(value, Mapping):
        return {prefix: _said(value)} if prefix else {}
    flat: dict[str, str] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}.{key}" if prefix else str(key))
    return flat


def _said(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
