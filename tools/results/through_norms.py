"""The table of `benchmarks/through_norms.py`: what it costs to prune through LayerNorms."""

import json
from pathlib import Path

from tools.results.tables import markdown

FILE = "sizes/through-norms.json"
WAYS = {  # (closed, norms over) -> what the row is called
    ("at once", "untouched"): "closed at once, without `through_norms`",
    ("at once", "all"): "closed at once, statistics of all neurons",
    ("at once", "open"): "closed at once, statistics of open neurons",
    ("in training", "open"): "closed by a `Target`, statistics of open neurons",
}


def table(folder: Path) -> str:
    """Return the losses before and after training, size by size."""
    path = folder / FILE
    if not path.exists():
        return ""
    found = json.loads(path.read_bytes())
    rows = [["dense", "100 %", _loss(found["dense"]), _loss(found["dense_trained"])]]
    for (closed, norms), name in WAYS.items():
        rows += [
            [name, f"{cell['keep']:.0%}", _loss(cell.get("before")), _loss(cell["trained"])]
            for cell in found["cells"]
            if (cell["closed"], cell["norms_over"]) == (closed, norms)
        ]
    settings = found["settings"]
    more = (
        f"Without `through_norms` this model cannot have less than {found['smallest']:.1%} of its "
        f"parameters, with it {found['smallest_through_norms']:.1%}. The dense model had "
        f"{settings['steps']:,} steps of training. `{found['command']}`"
    )
    head = ("", "parameters", "loss", f"after {settings['more']} steps")
    return f"{markdown(head, rows)}\n\n{more}"


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
