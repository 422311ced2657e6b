"""What `benchmarks/rhn_step.py` measured of a training step of a recurrent highway network."""

import json
from pathlib import Path
from typing import Any

from tools.results.tables import markdown

FILES = ("speed/rhn-step-cuda.json", "speed/rhn-step-389-cuda.json")  # the paper's width, then ours
LABELS = {
    "reference": "the equations, eager PyTorch",
    "compiled": "time steps compiled by torch.compile",
    "reference graph": "the equations as one CUDA graph",
    "compiled graph": "compiled, as one CUDA graph",
    "pointwise": "one matrix product and one Triton kernel per small step",
    "pointwise graph": "the same as one CUDA graph",
    "polling graph": "one Triton kernel for all small steps, as one CUDA graph",
}


def read(folder: Path) -> list[dict[str, Any]]:
    """Return what was measured, the paper's width first; nothing if that is not there.

    Older files call the settings "options".
    """
    paths = [folder / name for name in FILES]
    if not paths[0].exists():
        return []
    found = [json.loads(path.read_bytes()) for path in paths if path.exists()]
    return [{"settings": one.pop("options"), **one} if "options" in one else one for one in found]


def table(all_found: list[dict[str, Any]]) -> str:
    """Return the milliseconds of each way, and its speed-up over eager PyTorch."""
    first = all_found[0]
    faster = first["times_faster_than_the_reference"]
    lines = []
    for way, label in LABELS.items():
        if way in first["milliseconds"]:
            times = [found["milliseconds"].get(way) for found in all_found]
            shown = ["-" if time is None else f"{time['median']:.2f}" for time in times]
            lines.append([label, shown[0], f"{faster[way]:.1f}x", *shown[1:]])
    width, *others = (f"width {found['settings']['width']}, ms" for found in all_found)
    return markdown(["", width, "speed-up", *others], lines)


def best(found: dict[str, Any]) -> float:
    """Return the milliseconds of the fastest way."""
    return float(min(times["median"] for times in found["milliseconds"].values()))
