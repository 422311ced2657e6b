"""What `benchmarks/gate_variance.py` measured of the gradients of gates."""

import json
from pathlib import Path
from typing import Any

from tools.results.tables import markdown

FILE = "speed/gate-variance-cpu.json"
RELAXED = "hard concrete"  # what the others are compared with


def read(folder: Path) -> dict[str, Any] | None:
    """Return what was measured, if it is there."""
    path = folder / FILE
    return json.loads(path.read_bytes()) if path.exists() else None


def table(found: dict[str, Any]) -> str:
    """Return mean and variance of the gradient for each estimator and probability."""
    lines = []
    for probability, case in found["gradients"].items():
        relaxed = case[RELAXED]["variance"]
        for name, figures in case.items():
            mean, variance = (f"{figures[key]:.2g}" for key in ("mean", "variance"))
            times = f"{figures['variance'] / relaxed:.3g}x"
            lines.append([probability, name, mean, variance, times])
    head = ("probability of an open gate", "estimator", "length of the mean gradient")
    return markdown([*head, "variance, summed over gates", f"relative to {RELAXED}"], lines)
