"""What `benchmarks/voice_in_c.py` measured of a pruned voice detector as plain C."""

import json
from pathlib import Path
from typing import Any

from tools.results.tables import markdown

FILE = "speed/voice-in-c-cpu.json"


def read(folder: Path) -> dict[str, Any] | None:
    """Return what was measured, if it is there."""
    path = folder / FILE
    return json.loads(path.read_bytes()) if path.exists() else None


def table(found: dict[str, Any]) -> str:
    """Return quality and time of the detector in PyTorch, pruned, and as C."""
    rows = []
    for name, one in found["quality"].items():
        params = f"{one['params']:,}" if "params" in one else "-"
        figures = [f"{one['auc']:.4f}", f"{one['agreement']:.1%}"]
        rows.append([name, params, *figures, f"{found['microseconds'][name]:,.0f}"])
    head = ("detector", "parameters", "AUC", "same verdict as the original")
    return markdown((*head, "microseconds per window"), rows)
