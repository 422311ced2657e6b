"""The files in results/, read back and put together over seeds."""

import json
import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Figures:
    """What is known about one model; a list has one value per seed."""

    valid: tuple[float, ...]
    test: tuple[float, ...]
    sizes: str = ""
    weights: int | None = None

    def mean(self, part: str) -> float:
        """Return the mean perplexity on "valid" or "test"."""
        return statistics.fmean(getattr(self, part))


@dataclass(frozen=True)
class Results:
    """All published runs, by name."""

    runs: dict[str, dict[str, Any]]
    pictures: tuple[str, ...] = ()  # names of the runs with a picture of their pattern

    @classmethod
    def read(cls, folder: Path) -> "Results":
        """Return the runs of a folder; JSON files that are about something else are left out."""
        runs = {}
        for path in sorted((*folder.glob("*.json"), *folder.glob("*/*.json")), key=_name):
            found = json.loads(path.read_bytes())
            if "models" in found and "curves" in found:
                runs[path.stem] = found
        pictures = tuple(name for name in runs if (folder / f"{place(name)}.svg").exists())
        return cls(runs, pictures)

    def seeds(self, name: str) -> list[dict[str, Any]]:
        """Return a run and its repetitions with other seeds, which are called NAME-seedN."""
        pattern = re.compile(re.escape(name) + r"(?:-seed\d+)?")
        found = [run for other, run in self.runs.items() if pattern.fullmatch(other)]
        return sorted(found, key=lambda run: run["seed"])

    def figures(self, name: str, kind: str) -> Figures | None:
        """Return what the model of a kind reached over all seeds, or None if it was not run."""
        found = [run["models"][kind] for run in self.seeds(name) if kind in run["models"]]
        if not found:
            return None
        return Figures(
            tuple(model["valid_perplexity"] for model in found),
            tuple(model["test_perplexity"] for model in found),
            sizes_of(found[0]),
            max(model["weights"] for model in found),
        )


def place(name: str) -> str:
    """Return where the file of a run is in results/, without its suffix: its experiment, its name.

    >>> place("ptb-rhn-plain")
    'rhn/ptb-rhn-plain'
    """
    folders = {"tried": "-try-", "rhn": "ptb-rhn-", "ptb": "ptb-", "squad": "squad-"}
    found = next((folder for folder, part in folders.items() if part in name), None)
    return f"{found}/{name}" if found else name


def _name(path: Path) -> str:
    return path.stem


def sizes_of(model: dict[str, Any]) -> str:
    """Return the neurons of a model, as in 251-296-247."""
    return "-".join(map(str, model["neurons"].values()))


def quality(model: dict[str, Any]) -> str:
    """Return how good a model is: perplexities, valid and test, or EM and F1."""
    if "em" in model:
        return f"EM {model['em']:.2f}, F1 {model['f1']:.2f}"
    return f"{model['valid_perplexity']:.2f}, {model['test_perplexity']:.2f}"


def expected(run: dict[str, Any]) -> str:
    """Return the text that `thinrnn list` shows about a preset: what its main model reached.

    That it had teachers is said, since the preset alone trains one of its own.
    """
    model = next(run["models"][k] for k in ("small", "dense", "control") if k in run["models"])
    reached = quality(model) if "em" in model else quality(model).replace(", ", " / ")
    teachers = run.get("settings", {}).get("teacher") or []
    alone = isinstance(teachers, str) or len(teachers) == 1  # a text in older files
    given = f", given {'a teacher' if alone else f'{len(teachers)} teachers'}" if teachers else ""
    return f"{reached}, {millions(model['weights'])} weights{given}"


def millions(number: int | None) -> str:
    """Return a number of weights as people write it: 6.16M."""
    if number is None:
        return "-"
    return f"{number / 1e6:.1f}M" if number >= 2e7 else f"{number / 1e6:.2f}M"
