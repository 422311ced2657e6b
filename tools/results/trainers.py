"""Tables about other trainers, several processes, a time as the target, and several sizes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.results.tables import markdown

Found = dict[str, Any]


def forecaster(found: Found) -> str:
    """Return error and time of the forecaster before and after, and of its control."""
    rows = [
        [
            name,
            f"{m['params']:,}",
            f"{m['mean_error_ppm']:.3f} ({', '.join(f'{e:.3f}' for e in m['error_ppm'])})",
            f"{m['milliseconds']:.2f}",
        ]
        for name, m in found["models"].items()
    ]
    head = ("model", "parameters", "error, ppm (by seed)", "CPU, ms per forecast")
    noise = " Other programs ran on the machine, so the times are rough." * found["times_are_noisy"]
    return f"{markdown(head, rows)}\n\n{_source(found)}{noise}"


def scaling(found: Found) -> str:
    """Return the time of a training step by number of processes."""
    rows = [
        [n, f"{row['milliseconds_per_step']:.1f}", f"{row['efficiency']:.2f}"]
        for n, row in found["processes"].items()
    ]
    busy = f" Before it began, {found['load']:.0f} other processes wanted a core." * (
        found["load"] > 1
    )
    return f"{markdown(('processes', 'ms per step', 'efficiency'), rows)}\n\n{_source(found)}{busy}"


def latency(found: Found) -> str:
    """Return the time that was asked for and the times that were measured."""
    rows = []
    for name, model in found["models"].items():
        for place, one in enumerate(model["rounds"]):
            rows.append(
                [
                    name if place == 0 else "",
                    f"{model['asked_ms']:.3f}",
                    f"{one['small_ms']:.3f}",
                    f"{100 * (one['over_asked'] - 1):+.1f} %",
                    f"{100 * (one['over_asked_without_drift'] - 1):+.1f} %",
                ]
            )
    head = ("model", "asked, ms", "measured, ms", "difference", "without drift")
    thread = " Times are those of the calling thread, since other programs ran."
    note = thread if found["settings"].get("cpu_time") else ""
    return f"{markdown(head, rows)}\n\n{_source(found)}{note}"


def sizes(found: Found) -> str:
    """Return the perplexities from one training and from a training for each size."""
    rows = [
        [
            f"{row.get('steps') or found['steps_of_each_training']:,}",
            row["size"],
            f"{row['one_run']['params']:,}",
            *(f"{row[run][p]:.2f}" for p in PERPLEXITIES for run in ("one_run", "own_run")),
            *(f"{100 * row['worse'][p]:+.1f} %" for p in PERPLEXITIES),
        ]
        for row in found["models"]
    ]
    head = ("steps", "size", "parameters", "valid, one training", "valid, own")
    more = ("test, one training", "test, own", "valid difference", "test difference")
    return f"{markdown((*head, *more), rows)}\n\n{_source(found)}"


PERPLEXITIES = ("valid_perplexity", "test_perplexity")
TABLES: dict[str, tuple[str, Callable[[Found], str]]] = {
    "forecaster": ("speed/forecaster-co2.json", forecaster),
    "scaling": ("speed/scaling.json", scaling),
    "latency target": ("speed/latency-target-cpu.json", latency),
    "sizes demo": ("sizes/several-sizes-demo.json", sizes),
    "sizes demo short": ("sizes/several-sizes-demo-short.json", sizes),
    "sizes ptb": ("sizes/several-sizes-ptb.json", sizes),
    "sizes branches": ("sizes/branches-demo.json", sizes),
    "sizes branches constant": ("sizes/branches-demo-constant.json", sizes),
}


def table(folder: Path, name: str) -> str:
    """Return a table by its name, or nothing if it was not measured."""
    file, write = TABLES[name]
    path = folder / file
    return write(json.loads(path.read_bytes())) if path.exists() else ""


def _source(found: Found) -> str:
    about = found["environment"]
    machine = about.get("gpu") or f"{about['processor']}, {about['cores']} cores"
    return f"`{found['command']}`, {machine}, torch {about['torch']}."
