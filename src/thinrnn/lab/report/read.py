"""Reads a run folder into frozen data; everything that the report shows comes from here.

    config.json     settings and machine        metrics.jsonl   what was measured while training
    dense.json, small.json, control.json        the finished models
    pattern.json    which rows and columns of each weight matrix are left

Only config.json must exist. A run in progress has the other files later.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from thinrnn._files import read_json
from thinrnn.errors import RunError
from thinrnn.lab.run import RunFolder, schemas
from thinrnn.lab.run.folder import KIND_OF, is_running
from thinrnn.lab.run.metrics import read_metrics

KINDS = ("dense", "small", "control")
PHASES = ("dense", "gated", "control")
NAN = math.nan


@dataclass(frozen=True)
class Measure:
    """A measure of quality: its key in the run folder, and which way is better."""

    key: str
    name: str
    lower_is_better: bool

    @property
    def title(self) -> str:
        return self.name[0].upper() + self.name[1:]

    def best(self, epochs: Iterable["Epoch"]) -> "Epoch | None":
        """Returns the best epoch among those that have a value."""
        measured = [epoch for epoch in epochs if math.isfinite(epoch[self.key])]
        choose = min if self.lower_is_better else max
        return choose(measured, key=lambda epoch: epoch[self.key]) if measured else None


# The metrics of runs whose config.json names none; a reader is judged by F1 and EM alone.
READER_METRICS = (Measure("f1", "F1", False), Measure("em", "exact match (EM)", False))
LANGUAGE_METRICS = (
    Measure("test_perplexity", "test perplexity", True),
    Measure("valid_perplexity", "validation perplexity", True),
)
_NAMES = {metric.key: metric.name for metric in READER_METRICS + LANGUAGE_METRICS}
_NAMES["valid_loss"] = "validation loss"


@dataclass(frozen=True)
class Measured:
    """Numbers by key; `measured[key]` is NaN for a number that was not measured."""

    numbers: Mapping[str, float]

    def __getitem__(self, key: str) -> float:
        return self.numbers.get(key, NAN)


@dataclass(frozen=True)
class Epoch(Measured):
    """What was measured at the end of one epoch of one phase."""

    phase: str
    epoch: int
    kept: Mapping[str, int]
    sizes: Mapping[str, int]
    values: Mapping[str, np.ndarray]  # gate values by original neuron index, in bins


@dataclass(frozen=True)
class Summary(Measured):
    """Quality, size and speed of one finished model."""

    neurons: Mapping[str, int]


@dataclass(frozen=True)
class WeightMatrix:
    """One weight matrix: its original shape and the indices that are left."""

    name: str
    rows: int
    columns: int
    kept_rows: np.ndarray
    kept_columns: np.ndarray

    @property
    def share(self) -> float:
        """The share of the weights that is left."""
        return len(self.kept_rows) * len(self.kept_columns) / (self.rows * self.columns)


@dataclass(frozen=True)
class Run:
    """Everything that a report shows of one run folder."""

    folder: Path
    name: str
    config: Mapping[str, Any]
    epochs: tuple[Epoch, ...]
    summaries: Mapping[str, Summary]
    matrices: tuple[WeightMatrix, ...]
    is_running: bool

    @property
    def models(self) -> dict[str, Summary]:
        """The finished models by kind: dense, small, control."""
        return {kind: self.summaries[kind] for kind in KINDS if kind in self.summaries}

    @property
    def finished(self) -> bool:
        """Whether the model of every phase exists; until then the run is in progress."""
        settings = self.config.get("settings")
        phases = settings.get("phases") if isinstance(settings, Mapping) else None
        wanted = phases if isinstance(phases, list) and phases else ["gated"]
        return all(KIND_OF.get(phase, "small") in self.summaries for phase in wanted)

    @property
    def metrics(self) -> tuple[Measure, ...]:
        """The metrics of this run, the most important first."""
        named = self.config.get("metrics")
        if isinstance(named, Mapping):
            found = [
                Measure(key, _NAMES.get(key, key.replace("_", " ")), better == "lower")
                for key, better in named.items()
            ]
            return tuple(sorted(found, key=lambda metric: not metric.key.startswith("test")))
        scores = [measured["f1"] for measured in (*self.epochs, *self.summaries.values())]
        return READER_METRICS if any(map(math.isfinite, scores)) else LANGUAGE_METRICS

    def phase(self, name: str) -> list[Epoch]:
        """Returns the epochs of one phase in their order."""
        return sorted((e for e in self.epochs if e.phase == name), key=lambda e: e.epoch)

    def points(self, phase: str, key: str) -> list[tuple[float, float]]:
        """Returns a number of all epochs of a phase, with the epoch."""
        return [(float(epoch.epoch), epoch[key]) for epoch in self.phase(phase)]

    def at_size(self, phase: str) -> list[Epoch]:
        """Returns the epochs of a phase whose model has the size it ends with.

        A gated model is larger before, so its earlier values compare with nothing.
        """
        epochs = self.phase(phase)
        last = epochs[-1] if epochs else None
        if phase != "gated" or last is None:
            return epochs
        if "small" not in self.summaries and last["params"] > last["target"]:
            return []
        return [epoch for epoch in epochs if epoch.kept == last.kept]


def common_metric(runs: Iterable[Run]) -> Measure | None:
    """Returns the first metric that every finished model of the runs has."""
    runs = list(runs)
    models = [model for run in runs for model in run.summaries.values()]
    for metric in runs[0].metrics:
        if models and all(math.isfinite(model[metric.key]) for model in models):
            return metric
    return None


def read_run(folder: Path) -> Run:
    """Returns what the run folder holds so far; RunError names a file that is damaged."""
    summaries = {}
    run = RunFolder(folder)
    for kind, data in run.summaries().items():
        summaries[kind] = Summary(_numbers(data), _counts(data, "neurons"))
    pattern = folder / "pattern.json"
    matrices: tuple[WeightMatrix, ...] = ()
    if os.path.lexists(pattern):
        with _naming(pattern):
            matrices = tuple(
                WeightMatrix(
                    *(m.name, m.rows, m.columns),
                    *(_kept(m.kept_rows, m.rows), _kept(m.kept_columns, m.columns)),
                )
                for m in read_json(pattern, schemas.Pattern, RunError).matrices
            )
    return Run(
        folder=folder,
        name=folder.resolve().name,
        config=run.config,
        epochs=_read_epochs(folder / "metrics.jsonl"),
        summaries=_with_common_names(summaries),
        matrices=matrices,
        is_running=is_running(folder),
    )


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Names the file when something in it is not what it should be."""
    try:
        yield
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        if isinstance(error, RunError):  # which names it already
            raise
        raise RunError(
            f"{path} is damaged: {error}; restore it, or resume the run to write it again"
        ) from error


def _read_epochs(path: Path) -> tuple[Epoch, ...]:
    """Returns the epochs in the order in which they were measured.

    Where a resumed run measured the same epoch again, the later line counts.
    """
    epochs: dict[tuple[str, int], Epoch] = {}
    with _naming(path):
        for event in read_metrics(path):
            if event.get("event") == "epoch":
                epoch = _epoch(event)
                epochs.pop((epoch.phase, epoch.epoch), None)
                epochs[epoch.phase, epoch.epoch] = epoch
    return tuple(epochs.values())


def _numbers(data: Mapping[str, Any]) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in data.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }


def _counts(data: Mapping[str, Any], key: str) -> dict[str, int]:
    return {str(name): int(count) for name, count in (data.get(key) or {}).items()}


def _epoch(data: Mapping[str, Any]) -> Epoch:
    return Epoch(
        _numbers(data),
        phase=str(data["phase"]),
        epoch=int(data["epoch"]),
        kept=_counts(data, "kept"),
        sizes=_counts(data, "sizes"),
        values={
            str(name): np.asarray(values, dtype=np.float32).reshape(-1)
            for name, values in (data.get("values") or {}).items()
        },
    )


def _with_common_names(summaries: Mapping[str, Summary]) -> dict[str, Summary]:
    """Gives coupled groups their joint name in every model, so that rows of a table line up.

    A model without gates may know "embedding" and "rnn.l1" where a pruned one has both as
    "embedding+rnn.l1".
    """
    names = {name for summary in summaries.values() for name in summary.neurons}
    joint = {part: name for name in names if "+" in name for part in name.split("+")}
    return {
        kind: replace(summary, neurons={joint.get(n, n): k for n, k in summary.neurons.items()})
        for kind, summary in summaries.items()
    }


def _kept(indices: list[int] | None, size: int) -> np.ndarray:
    if indices is None:
        return np.arange(size)
    kept = np.asarray(indices, dtype=np.int64).reshape(-1)
    if kept.size and (kept.min() < 0 or kept.max() >= size):
        raise ValueError(f"a kept index lies outside 0..{size - 1}")
    return kept
