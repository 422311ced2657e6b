"""What `benchmarks/robustness.py` measured: models of the tool against a 5-gram model."""

import json
from pathlib import Path
from typing import Any

from thinrnn.lab.recipes.language_model.choose import usual_lr, usual_width
from thinrnn.lab.recipes.language_model.model import first_ranges
from tools.results.tables import markdown

FILE = "speed/robustness.json"
KINDS = ("dense", "small", "control")
SLOWEST = 0.9  # of the speed of a bare loop


def read(folder: Path) -> dict[str, Any] | None:
    """Return what was measured, if it is there."""
    path = folder / FILE
    return json.loads(path.read_bytes()) if path.exists() else None


def table(found: dict[str, Any]) -> str:
    """Return a row for each run: what it was, and the ratio of each of its models."""
    lines = []
    for run in sorted(found["runs"], key=_order):
        tied = "tied" if run["tied"] else "untied"
        what = f"{run['cell'].upper()} {run['width']}, {tied}, seed {run['seed']}"
        what += "*" * began_otherwise(run)
        ratios = [_ratio(run, run["models"][kind]) for kind in KINDS]
        speeds = [f"{speed:.2f}" for speed in speeds_of(run)]
        passes = f"{run['epochs']} x {run['tokens']:,}"
        lines.append([run["device"], run["corpus"], what, passes, *ratios, *speeds])
    head = ["device", "text", "model", "passes x tokens", *KINDS]
    return markdown([*head, "speed, dense", "speed, control"], lines)


def speeds_of(run: dict[str, Any]) -> list[float]:
    """Return tokens per second over those of a bare loop, of the dense model and the control."""
    return [1 / run["models"][kind]["step"]["ratio"] for kind in ("dense", "control")]


def began_otherwise(run: dict[str, Any]) -> bool:
    """Return whether the tool would choose another rate or other first weights today."""
    settings = run["settings"]
    embedding, output = settings["embedding"], settings["hidden"][-1]
    today = first_ranges("width", run["cell"], embedding, output, run["tied"])
    # at first both had the range of the embedding, and no file said so
    ranges = run.get("first_ranges", first_ranges("width", "lstm", embedding, embedding, True))
    lr = usual_lr("adam", run["cell"], run["width"])
    return settings["lr"] != lr or list(ranges) != list(today)


def any_began_otherwise(found: dict[str, Any]) -> bool:
    """Return whether there is such a run."""
    return any(map(began_otherwise, found["runs"]))


def above(found: dict[str, Any]) -> tuple[int, int, int]:
    """Return how many models are worse than the 5-gram model, of them narrow, of how many."""
    all_of = [(run, model) for run in found["runs"] for model in run["models"].values()]
    worse = [(run, model) for run, model in all_of if model["ratio"] > 1]
    return len(worse), sum(is_narrow(*each) for each in worse), len(all_of)


def is_narrow(run: dict[str, Any], model: dict[str, Any]) -> bool:
    """Return whether the text allows wider layers than the model has."""
    return bool(max(model["shape"][1:]) < usual_width(run["tokens"]))


def slower(found: dict[str, Any]) -> tuple[int, int]:
    """Return how many models train at less than 0.9 of a bare loop's speed, and of how many."""
    speeds = [speed for run in found["runs"] for speed in speeds_of(run)]
    return sum(speed < SLOWEST for speed in speeds), len(speeds)


def _ratio(run: dict[str, Any], model: dict[str, Any]) -> str:
    ratio = f"{model['ratio']:.2f}"
    if model["ratio"] <= 1:
        return ratio
    return f"*{ratio}*" if is_narrow(run, model) else f"**{ratio}**"


def _order(run: dict[str, Any]) -> tuple[Any, ...]:
    return run["device"], run["corpus"], run["width"], run["cell"], run["seed"]
