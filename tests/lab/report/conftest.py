"""Synthetic run folders, small and made without training anything."""

import json
import math
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

GROUPS = {"embedding": 200, "lstm.l0": 200, "lstm.l1": 200}


def gate_values(size: int, kept: int, time: float, seed: int) -> list[float]:
    """Returns values in at most 200 bins: `kept` neurons stay open, the others close one by one."""
    draw = random.Random(seed)
    order = draw.sample(range(size), size)
    closing = {neuron: draw.uniform(0.1, 0.9) for neuron in order[kept:]}
    values = [
        1 / (1 + math.exp(min(60.0, 25 * (time - closing[n])))) if n in closing else 1.0
        for n in range(size)
    ]
    values = [v if v > 0.02 else 0.0 for v in values]
    bins = min(size, 200)
    edges = [round(i * size / bins) for i in range(bins + 1)]
    return [round(sum(values[a:b]) / (b - a), 4) for a, b in pairwise(edges)]


def epoch_line(phase: str, epoch: int, epochs: int, groups: dict[str, int]) -> dict[str, Any]:
    time = epoch / epochs
    floor = {"dense": 84.0, "gated": 85.5, "control": 93.0}[phase]
    line: dict[str, Any] = {
        "event": "epoch",
        "phase": phase,
        "epoch": epoch,
        "step": 100 * epoch,
        "train_loss": 4.0,
        "valid_loss": 4.4,
        "valid_perplexity": floor + 600 * math.exp(-9 * time),
        "penalty": 0.0,
        "kept": groups,
        "sizes": groups,
        "params": 1_920_000,
        "target": None,
        "seconds": 3.0 * epoch,
        "values": {},
    }
    if phase == "gated":
        line["values"] = {
            name: gate_values(size, size // (i % 4 + 2), time, seed=i)
            for i, (name, size) in enumerate(groups.items())
        }
        line["kept"] = {
            name: round(size * sum(v > 0 for v in line["values"][name]) / min(size, 200))
            for name, size in groups.items()
        }
        line["penalty"] = 0.8 * math.exp(-3 * time)
        line["params"] = int(1_920_000 * sum(line["kept"].values()) / sum(groups.values()))
        line["target"] = 480_000
    return line


def summary(kind: str, groups: dict[str, int], **changes: Any) -> dict[str, Any]:
    small = kind != "dense"
    base = {
        "kind": kind,
        "valid_perplexity": {"dense": 84.02, "small": 85.13, "control": 92.4}[kind],
        "test_perplexity": {"dense": 81.11, "small": 81.93, "control": 88.75}[kind],
        "params": 431_204 if small else 1_925_600,
        "weights": 428_100 if small else 1_920_000,
        "macs": 418_000 if small else 1_910_000,
        "bytes": 1_724_816 if small else 7_702_400,
        "neurons": {name: size // (i % 4 + 2) for i, (name, size) in enumerate(groups.items())}
        if small
        else dict(groups),
        "milliseconds": {"dense": 12.4, "small": 3.61, "control": 3.64}[kind],
        "batch": 1,
        "steps": 35,
        "threads": 1,
        "epochs": 20,
        "seconds": 61.0,
    }
    if kind == "small":
        base |= {"difference": 2.1e-7, "onnx_milliseconds": 2.9, "onnx_difference": 4e-7}
    return base | changes


def pattern(groups: dict[str, int], vocabulary: int = 2000) -> dict[str, Any]:
    """Returns the matrices of an LSTM language model whose groups feed one another in order."""
    draw = random.Random(0)
    names = list(groups)
    kept = {
        name: sorted(draw.sample(range(size), size // (i % 4 + 2)))
        for i, (name, size) in enumerate(groups.items())
    }

    def gate_rows(name: str) -> list[int]:
        return [gate * groups[name] + i for gate in range(4) for i in kept[name]]

    def matrix(name: str, rows: int, columns: int, r: Any, c: Any) -> dict[str, Any]:
        return {"name": name, "rows": rows, "columns": columns, "kept_rows": r, "kept_columns": c}

    first = names[0]
    matrices = [matrix(f"{first}.weight", vocabulary, groups[first], None, kept[first])]
    for before, name in pairwise(names):
        rows, kept_rows = 4 * groups[name], gate_rows(name)
        matrices += [
            matrix(f"{name} input", rows, groups[before], kept_rows, kept[before]),
            matrix(f"{name} recurrent", rows, groups[name], kept_rows, kept[name]),
        ]
    matrices.append(matrix("decoder.weight", vocabulary, groups[names[-1]], None, kept[names[-1]]))
    return {"matrices": matrices}


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Returns a function that writes a run folder: finished, or as far as it is told."""

    def make(
        name: str = "run",
        *,
        epochs: int = 20,
        groups: dict[str, int] | None = None,
        finished: bool = True,
        summaries: dict[str, dict[str, Any]] | None = None,
        config: dict[str, Any] | None = None,
    ) -> Path:
        groups = GROUPS if groups is None else groups
        folder = tmp_path / name
        folder.mkdir(parents=True)
        _json(
            folder / "config.json",
            {
                "thinrnn": "0.1.0",
                "recipe": "language_model",
                "preset": "demo",
                "settings": {
                    "hidden_size": 200,
                    "layers": 2,
                    "lr": 0.002,
                    "target": {"params": 0.25},
                },
                "command": f"thinrnn train lm --train corpus.txt --preset demo --out runs/{name}",
                "seed": 1,
                "environment": {
                    "python": "3.12.4",
                    "torch": "2.13.0",
                    "device": "cpu",
                    "threads": 2,
                },
            }
            | (config or {}),
        )
        lines = []
        for phase in ("dense", "gated", "control") if finished else ("dense", "gated"):
            for epoch in range(1, epochs + 1):
                lines.append(epoch_line(phase, epoch, epochs, groups))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        kinds = ("dense", "small", "control") if finished else ("dense",)
        for kind in kinds:
            _json(folder / f"{kind}.json", summary(kind, groups, **(summaries or {}).get(kind, {})))
        if finished and len(groups) > 1:
            _json(folder / "pattern.json", pattern(groups))
        return folder

    return make


def _json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data), encoding="utf-8")
