"""The published runs in results/, put together over seeds."""

import json
import math
import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDERS = {"tried": "-try-", "rhn": "ptb-rhn-", "ptb": "ptb-", "squad": "squad-"}


@dataclass(frozen=True)
class Figures:
    """What one model reached, a value per seed: perplexity on valid and test, or EM and F1."""

    first: tuple[float, ...]
    second: tuple[float, ...]
    sizes: str
    weights: int
    how: str = ""
    macs: int | None = None

    def __str__(self) -> str:
        seeds = f" ({len(self.second)} seeds)" if len(self.second) > 1 else ""
        return f"{spread(self.first)}, {spread(self.second)}{seeds}"


@dataclass(frozen=True)
class Results:
    """All published runs, by name."""

    runs: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> "Results":
        """Return the runs of results/; benchmarks are left out."""
        files = {path.stem: path for path in (*folder.glob("*.json"), *folder.glob("*/*.json"))}
        found = {name: json.loads(files[name].read_bytes()) for name in sorted(files)}
        return cls({name: run for name, run in found.items() if "curves" in run})

    def seeds(self, name: str) -> list[dict[str, Any]]:
        """Return a run and its repetitions with other seeds, which are called NAME-seedN."""
        pattern = re.compile(re.escape(name) + r"(?:-seed\d+)?")
        found = [run for other, run in self.runs.items() if pattern.fullmatch(other)]
        return sorted(found, key=lambda run: run["seed"])

    def figures(self, name: str, kind: str = "small") -> Figures | None:
        """Return what the small, dense or control model of a run reached; None if there is none."""
        runs = [run for run in self.seeds(name) if kind in run["models"]]
        models = [run["models"][kind] for run in runs]
        if not models:
            return None
        scores = [scores_of(model) for model in models]
        return Figures(
            tuple(first for first, _ in scores),
            tuple(second for _, second in scores),
            sizes_of(models[0]),
            max(model["weights"] for model in models),
            how(runs[0]["settings"], kind),
            max((model["macs"] for model in models if "macs" in model), default=None),
        )


def how(settings: dict[str, Any], kind: str) -> str:
    """Return how a model got its size, and what helped it, by the settings of its run.

    >>> how({"target_params": 6_170_000, "distill": 0.9, "teacher": ["a", "b"]}, "small")
    'target + teacher'
    """
    given = {key for key, value in settings.items() if value}
    if kind != "small":
        means = "scratch"
    elif "lasso" in given:
        means = "lasso"
    elif "l0" in given:
        means = "L0"
    else:
        score = settings.get("score", "gates")
        means = "target" if score == "gates" else score
    helped = [] if kind == "dense" else [("distill", "teacher"), ("written", "texts")]
    helped += [("start_from", "start")] if kind == "small" else []
    arm = ["ARM"] if kind == "small" and settings.get("gate") == "arm" else []
    return " + ".join([means, *arm, *(name for key, name in helped if key in given)])


def scores_of(model: dict[str, Any]) -> tuple[float, float]:
    """Return perplexity on valid and test, or EM and F1."""
    keys = ("em", "f1") if "em" in model else ("valid_perplexity", "test_perplexity")
    first, second = (math.nan if model[key] is None else float(model[key]) for key in keys)
    return first, second


def sizes_of(model: dict[str, Any]) -> str:
    """Return the neurons of a model, as in 251-296-247; those of a reader's encoder come last."""
    neurons = sorted(model["neurons"].items(), key=lambda item: item[0].startswith("encoder"))
    return "-".join(str(size) for _, size in neurons)


def place(name: str) -> str:
    """Return where the file of a run is in results/, without its suffix: its experiment, its name.

    >>> place("ptb-rhn-plain")
    'rhn/ptb-rhn-plain'
    """
    folder = next((folder for folder, part in FOLDERS.items() if part in name), None)
    return f"{folder}/{name}" if folder else name


def spread(values: tuple[float, ...]) -> str:
    """Return the mean, and the standard deviation of several values; ? is unknown."""
    if math.isnan(values[0]):
        return "?"
    mean = f"{statistics.fmean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.2f}"


def millions(number: float) -> str:
    """Return a number of weights as people write it: 6.16M."""
    return f"{number / 1e6:.1f}M" if number >= 2e7 else f"{number / 1e6:.2f}M"
