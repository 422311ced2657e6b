"""What `benchmarks/rhn_step.py` found about a training step of a recurrent highway network."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.results.markdown import markdown

FILES = (
    "speed/rhn-step-cuda.json",
    "speed/rhn-step-389-cuda.json",
)
MOST_MILLISECONDS, LEAST_TIMES = 4.0, 12.0  # the goals
LABELS = {
    "reference": "the equations, one kernel after the other",
    "compiled": "the same, time steps compiled by torch.compile",
    "reference graph": "the equations as one CUDA graph",
    "compiled graph": "compiled, as one CUDA graph",
    "pointwise": "a product and a kernel in each small step",
    "pointwise graph": "the same as one CUDA graph",
    "polling graph": "one kernel for all small steps, as one CUDA graph",
}
FLOORS = {
    "operations": "its operations",
    "cache": "these reads, from the second-level cache",
    "memory": "its traffic to memory",
}


def read(folder: Path) -> list[dict[str, Any]]:
    """Return what was measured, the paper's width first; nothing if that is not there."""
    paths = [folder / name for name in FILES]
    if not paths[0].exists():
        return []
    return [json.loads(path.read_bytes()) for path in paths if path.exists()]


def best(found: dict[str, Any]) -> tuple[str, float]:
    """Return the fastest way and its milliseconds."""
    medians = {name: times["median"] for name, times in found["milliseconds"].items()}
    name = min(medians, key=lambda way: medians[way])
    return name, medians[name]


def section(all_found: Sequence[dict[str, Any]]) -> str:
    """Return table and text; nothing if nothing was measured."""
    if not all_found:
        return ""
    return "\n\n".join([_about(all_found[0]), _table(all_found), _floor(all_found[0])])


def missed(all_found: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for each figure that is not what was asked for."""
    if not all_found:
        return []
    name, milliseconds = best(all_found[0])
    times = all_found[0]["times_faster_than_the_reference"][name]
    what = "- training step of the recurrent highway network"
    lines = []
    if milliseconds > MOST_MILLISECONDS:
        lines.append(f"{what}: {milliseconds:.2f} ms, asked: at most {MOST_MILLISECONDS:g} ms.")
    if times < LEAST_TIMES:
        lines.append(f"{what}: {times:.1f}x the reference, asked: at least {LEAST_TIMES:g}x.")
    return lines


def _about(found: dict[str, Any]) -> str:
    o = found["options"]
    return (
        f"A whole training step (embedding, dropout, {o['depth']} small steps in each of "
        f"{o['steps']} time steps, output layer over {o['words']:,} words, loss, backward, "
        f"clipping, SGD), batch {o['batch']}, bf16, on one {found['environment']['device']}, "
        "median of the steps of one run for each width:"
    )


def _table(all_found: Sequence[dict[str, Any]]) -> str:
    first = all_found[0]
    faster = first["times_faster_than_the_reference"]
    lines = []
    for way, label in LABELS.items():
        if way not in first["milliseconds"]:
            continue
        each = [found["milliseconds"].get(way) for found in all_found]
        shown = ["-" if times is None else f"{times['median']:.2f}" for times in each]
        lines.append([label, shown[0], f"{faster[way]:.1f}x", *shown[1:]])
    head = ["way", f"width {first['options']['width']}, ms", "over the first"]
    return markdown([*head, *(f"width {f['options']['width']}, ms" for f in all_found[1:])], lines)


def _floor(found: dict[str, Any]) -> str:
    name, milliseconds = best(found)
    floors = found["counts"]["floor_milliseconds_on_h200"]
    highest = max(floors, key=lambda part: floors[part])
    parts = ", ".join(f"{floors[part]:.2f} ms for {text}" for part, text in FLOORS.items())
    small_steps = found["counts"]["dependent_small_steps"]
    times = found["times_faster_than_the_reference"][name]
    reached = "which is reached" if milliseconds <= MOST_MILLISECONDS else "which is **missed**"
    return (
        "By the bytes and operations counted, a step that reads its matrices again in each small "
        f"step cannot take less than {parts}; the "
        f"best of these ways takes {milliseconds / floors[highest]:.0f} times the largest of "
        f"them. By this count the rest is waiting: {small_steps} small steps, forward and "
        "backward, each need all of the one before. "
        f"At most {MOST_MILLISECONDS:g} ms were asked for, {reached}, and "
        f"{LEAST_TIMES:g} times the speed of the equations, of which there are {times:.1f}."
    )
