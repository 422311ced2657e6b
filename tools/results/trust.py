"""What `make attack` tried, and what went wrong."""

import json
from pathlib import Path
from typing import Any

from tools.results.tables import markdown

FILE = "trust.json"


def read(folder: Path) -> dict[str, Any] | None:
    """Return what was tried, if it is there."""
    path = folder / FILE
    return json.loads(path.read_bytes()) if path.exists() else None


def table(found: dict[str, Any]) -> str:
    """Return the cases of each part of the attack, and a sentence about all of them."""
    lines = [
        [part, what, one["profile"], f"{cases:,}", str(one["failed tests"])]
        for part, one in found["parts"].items()
        for what, cases in one["cases"].items()
    ]
    machines = {
        f"Python {about['python']}, torch {about['torch']}, {about['cores']} cores"
        for about in (one["environment"] for one in found["parts"].values())
    }
    head = ("part", "what was tried", "profile", "cases", "failed tests of the part")
    return (
        f"{markdown(head, lines)}\n\n"
        f"{found['total']:,} cases in all, {found['aborts']} aborts of a process. "
        f"Measured with {' and '.join(sorted(machines))}; from `results/{FILE}`."
    )
