"""What one streaming step takes in each runtime, and what a stack of unequal layers takes."""

import json
from pathlib import Path
from typing import Any

from tools.results.tables import markdown

STEPS, STACKS = "speed/step-runtimes-cpu.json", "speed/stacks-cpu.json"


def read(folder: Path, file: str = STEPS) -> dict[str, Any] | None:
    """Return what was measured, if it is there."""
    path = folder / file
    return json.loads(path.read_bytes()) if path.exists() else None


def table(found: dict[str, Any]) -> str:
    """Return microseconds of a step by runtime and layer."""
    layers = list(next(iter(found["times"].values())))
    rows = [
        [name, *(f"{one[layer]:.1f}" if layer in one else "-" for layer in layers)]
        for name, one in found["times"].items()
    ]
    return markdown(("runtime", *layers), rows)


def packages(found: dict[str, Any]) -> str:
    """Return the versions of the runtimes in words."""
    return ", ".join(f"{name} {version}" for name, version in found["packages"].items() if version)


def stacks(found: dict[str, Any]) -> str:
    """Return microseconds of a call of two layers: before, now, of equal width, and dense."""
    rows = []
    for one in found["times"]:
        layers = f"{one['kind']} {' and '.join(map(str, one['sizes']))}"
        figures = [f"{one[name]:,.0f}" for name in ("modules", "stack", "equal", "dense")]
        rows.append([layers, one["shape"], *figures])
    head = ("layers", "call", "stack before", "stack", "torch, both of the wider size")
    return markdown((*head, "torch, four times as wide"), rows)
