"""Reads a run folder into frozen data; everything that is drawn comes from here.

    config.json     what was asked for          metrics.jsonl   what was measured while training
    dense.json, small.json, control.json        the finished models
    pattern.json    which rows and columns of each weight matrix are left

Only config.json must be there: a run in progress has the others later, and None or an empty
tuple stands for what is not written yet.
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from thinrnn.errors import RunError
from thinrnn.lab.run.folder import KIND_OF, is_running

KINDS = ("dense", "small", "control")
PHASES = ("dense", "gated", "control")
NAN = math.nan


@dataclass(frozen=True)
class Epoch:
    """What was measured at the end of one epoch of one phase; NaN stands for not measured."""

    phase: str
    epoch: int
    valid_perplexity: float
    penalty: float
    kept: Mapping[str, int]
    sizes: Mapping[str, int]
    params: float
    target: float
    seconds: float
    values: Mapping[str, np.ndarray]  # gate values by original neuron index, in bins
    em: float = NAN  # of a reader, in per cent
    f1: float = NAN


@dataclass(frozen=True)
class Step:
    """What was measured at one training step."""

    phase: str
    step: int
    epoch: float
    penalty: float


@dataclass(frozen=True)
class Summary:
    """Quality, size and speed of one finished model; NaN stands for not measured."""

    kind: str
    valid_perplexity: float
    test_perplexity: float
    params: float
    weights: float
    macs: float
    bytes: float
    neurons: Mapping[str, int]
    milliseconds: float
    batch: float
    steps: float
    threads: float
    difference: float
    onnx_milliseconds: float
    onnx_difference: float
    em: float = NAN  # of a reader, in per cent
    f1: float = NAN


@dataclass(frozen=True)
class Matrix:
    """One weight matrix: its original shape and the indices that are still there."""

    name: str
    rows: int
    columns: int
    kept_rows: np.ndarray
    kept_columns: np.ndarray


@dataclass(frozen=True)
class Run:
    """Everything a report shows of one run folder."""

    folder: Path
    name: str
    config: Mapping[str, Any]
    epochs: tuple[Epoch, ...]
    steps: tuple[Step, ...]
    summaries: Mapping[str, Summary]
    matrices: tuple[Matrix, ...]
    damaged_lines: tuple[int, ...]
    is_running: bool

    @property
    def finished(self) -> bool:
        """Whether the model of every phase is there; until then the run is in progress."""
        settings = self.config.get("settings")
        phases = settings.get("phases") if isinstance(settings, Mapping) else None
        asked = phases if isinstance(phases, list) and phases else ["gated"]
        return all(KIND_OF.get(phase, "small") in self.summaries for phase in asked)

    @property
    def is_reader(self) -> bool:
        """True where answers are scored, by EM and F1; perplexity says little then."""
        scores = [e.f1 for e in self.epochs] + [m.f1 for m in self.summaries.values()]
        return any(map(math.isfinite, scores))

    def phase(self, name: str) -> list[Epoch]:
        """Returns the epochs of one phase in their order."""
        return sorted((e for e in self.epochs if e.phase == name), key=lambda e: e.epoch)


def read_run(folder: Path) -> Run:
    """Returns what the run folder holds so far, or raises RunError with the file to look at."""
    config_path = folder / "config.json"
    if not folder.is_dir():
        raise RunError(
            f"{folder} is not a run folder: there is no such folder; "
            "`thinrnn list` shows the runs that are there"
        )
    config = _read_object(config_path)
    if config is None:
        raise RunError(
            f"{folder} is not a run folder: it has no config.json; "
            "give a folder written by `thinrnn train` or `thinrnn demo`"
        )
    epochs, steps, damaged = _read_metrics(folder / "metrics.jsonl")
    summaries = {}
    for kind in KINDS:
        path = folder / f"{kind}.json"
        data = _read_object(path)
        if data is not None:
            with _blaming(path):
                summaries[kind] = _summary(data, kind)
    path = folder / "pattern.json"
    with _blaming(path):
        matrices = _matrices(_read_object(path) or {})
    return Run(
        folder=folder,
        name=folder.resolve().name,
        config=config,
        epochs=epochs,
        steps=steps,
        summaries=_with_common_names(summaries),
        matrices=matrices,
        damaged_lines=damaged,
        is_running=is_running(folder),
    )


def _read_object(path: Path) -> dict[str, Any] | None:
    """Returns the JSON object in a file, None if there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"cannot read {path}: {error}") from error
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunError(
            f"{path} is damaged: {error}; restore it, or resume the run to write it again"
        ) from error
    if not isinstance(data, dict):
        raise RunError(f"{path} is damaged: it should hold a JSON object; resume the run")
    return data


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Names the file when something in it is not what it should be."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise RunError(
            f"{path} is damaged: {error}; restore it, or resume the run to write it again"
        ) from error


def _read_metrics(path: Path) -> tuple[tuple[Epoch, ...], tuple[Step, ...], tuple[int, ...]]:
    """Returns epochs, steps and the numbers of lines that could not be read.

    A kill can tear a line in two, so a torn last line is normal and not reported. Where a resumed
    run measured the same epoch or step again, the later line counts.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return (), (), ()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error}") from error
    epochs: dict[tuple[str, int], Epoch] = {}
    steps: dict[tuple[str, int], Step] = {}
    damaged = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            if data["event"] == "epoch":
                epoch = _epoch(data)
                # Out first, so that the newest measurement is the last one.
                epochs.pop((epoch.phase, epoch.epoch), None)
                epochs[epoch.phase, epoch.epoch] = epoch
            elif data["event"] == "step":
                step = _step(data)
                steps[step.phase, step.step] = step
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            if number < len(lines):
                damaged.append(number)
    if damaged and not epochs and not steps:
        raise RunError(f"{path} is damaged: none of its lines is a metrics record; resume the run")
    return tuple(epochs.values()), tuple(steps.values()), tuple(damaged)


def _number(data: Mapping[str, Any], key: str) -> float:
    value = data.get(key)
    if value is None:
        return NAN
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{key} is {value!r}, not a number")
    return float(value)


def _counts(data: Mapping[str, Any], key: str) -> dict[str, int]:
    return {str(name): int(count) for name, count in (data.get(key) or {}).items()}


def _epoch(data: Mapping[str, Any]) -> Epoch:
    return Epoch(
        phase=str(data["phase"]),
        epoch=int(data["epoch"]),
        valid_perplexity=_number(data, "valid_perplexity"),
        penalty=_number(data, "penalty"),
        kept=_counts(data, "kept"),
        sizes=_counts(data, "sizes"),
        params=_number(data, "params"),
        target=_number(data, "target"),
        seconds=_number(data, "seconds"),
        values={
            str(name): np.asarray(values, dtype=np.float32).reshape(-1)
            for name, values in (data.get("values") or {}).items()
        },
        em=_number(data, "em"),
        f1=_number(data, "f1"),
    )


def _step(data: Mapping[str, Any]) -> Step:
    return Step(
        phase=str(data["phase"]),
        step=int(data["step"]),
        epoch=_number(data, "epoch"),
        penalty=_number(data, "penalty"),
    )


def _summary(data: Mapping[str, Any], kind: str) -> Summary:
    names = [field for field in Summary.__dataclass_fields__ if field not in ("kind", "neurons")]
    numbers = {name: _number(data, name) for name in names}
    return Summary(kind=kind, neurons=_counts(data, "neurons"), **numbers)


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


def _matrices(data: Mapping[str, Any]) -> tuple[Matrix, ...]:
    for item in data.get("matrices", []):
        if int(item["rows"]) < 1 or int(item["columns"]) < 1:
            raise ValueError(f"matrix {item['name']!r} has no entries")
    return tuple(
        Matrix(
            name=str(item["name"]),
            rows=int(item["rows"]),
            columns=int(item["columns"]),
            kept_rows=_kept(item.get("kept_rows"), int(item["rows"])),
            kept_columns=_kept(item.get("kept_columns"), int(item["columns"])),
        )
        for item in data.get("matrices", [])
    )


def _kept(indices: list[int] | None, size: int) -> np.ndarray:
    if indices is None:
        return np.arange(size)
    kept = np.asarray(indices, dtype=np.int64).reshape(-1)
    if kept.size and (kept.min() < 0 or kept.max() >= size):
        raise ValueError(f"a kept index lies outside 0..{size - 1}")
    return kept
