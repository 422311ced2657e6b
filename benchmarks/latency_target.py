"""A target in milliseconds: what was asked for, and what a call of the small model takes.

    python -m benchmarks.latency_target

Two models, the dense one of `ptb-tiny` and a forecaster, are pruned to a part of their time in ONNX
Runtime on one thread. Times depend on sizes, not on weights, so nothing is trained: the neurons
with the largest weights stay. The machine may be faster or slower when the result is timed than
when the table was made, so the dense model is timed again beside it; the drift is that of its time.
Of several rounds the median counts.

With --cpu-time the clock is that of the calling thread, for machines on which other programs run:
it leaves out what they take, though not what they cost in caches.
"""

import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import thinrnn
import thinrnn.latency as latency
from benchmarks.record import parser, write_record
from thinrnn.lab import recipes
from thinrnn.lab.recipes.language_model.model import LanguageModel, example_tokens, find_plan
from thinrnn.timing import warm_clock

WORDS, WINDOW, HORIZON = 10_000, 78, 26


class Forecaster(nn.Module):
    """An LSTM that reads a window and forecasts what comes next."""

    def __init__(self, hidden: int = 192) -> None:
        super().__init__()
        self.rnn = nn.LSTM(1, hidden, num_layers=2, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, HORIZON))

    def forward(self, window: Tensor) -> Tensor:
        forecast: Tensor = self.head(self.rnn(window)[0][:, -1])
        return forecast


def models() -> dict[str, tuple[nn.Module, thinrnn.Plan, Tensor]]:
    """Return each model with its groups and the call to time."""
    torch.manual_seed(0)
    s: Any = recipes.preset("ptb-tiny").settings()
    language_model = LanguageModel(
        WORDS,
        embedding=s.embedding,
        hidden=s.hidden,
        tied=s.tied,
        rare=s.rare,
        rare_size=s.rare_size,
        locked=s.locked,
    )
    forecaster, window = Forecaster(), torch.randn(1, WINDOW, 1)
    return {
        "ptb-tiny": (language_model, find_plan(language_model), example_tokens(1, 30)),
        "forecaster": (forecaster, thinrnn.find_groups(forecaster, window), window),
    }


def ask(
    model: nn.Module, plan: thinrnn.Plan, example: Tensor, part: float, rounds: int, folder: Path
) -> dict[str, Any]:
    """Prune a model to a part of its time and time the result."""
    on = thinrnn.Latency(example, threads=1, file=folder / "times.json")
    dense = thinrnn.compact(thinrnn.attach_(model, plan))
    full = on.time({"dense": dense})["dense"].median
    goal = part * full
    target = thinrnn.Target(model, latency=f"{goal:.6f} ms", on=on, steps=1, score="magnitude")
    before = target.full["latency"]
    small = thinrnn.compact(model, target=target)
    found = []
    for _ in range(rounds):
        times = on.time({"dense": dense, "small": small})
        ratio = times["small"].median / goal
        drift = times["dense"].median / before
        found.append(
            {
                "small_ms": round(times["small"].median, 4),
                "dense_ms": round(times["dense"].median, 4),
                "over_asked": round(ratio, 4),
                "over_asked_without_drift": round(ratio / drift, 4),
                "is_noisy": any(timing.is_noisy for timing in times.values()),
            }
        )
    middle = {
        name: round(statistics.median(one[name] for one in found), 4)
        for name in ("over_asked", "over_asked_without_drift")
    }
    return {
        **middle,
        "dense_ms_by_the_table": round(before, 4),
        "asked_ms": round(goal, 4),
        "params": [thinrnn.count(one).params for one in (dense, small)],
        "rounds": found,
    }


def main() -> None:
    arguments = parser(__doc__, "latency-target-cpu.json")
    arguments.add_argument("--part", type=float, default=0.4, help="of the time of the dense model")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--only", choices=["ptb-tiny", "forecaster"])
    arguments.add_argument("--cpu-time", action="store_true")
    options = arguments.parse_args()
    if options.cpu_time:
        latency.warm_clock = partial(warm_clock, now=time.thread_time)
    torch.set_num_threads(1)
    load = round(os.getloadavg()[0], 1)
    rows = {}
    for name, (model, plan, example) in models().items():
        if options.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                rows[name] = ask(model, plan, example, options.part, options.rounds, Path(folder))
            print(name, rows[name], flush=True)
    write_record("milliseconds asked for, and measured", options, load=load, models=rows)


if __name__ == "__main__":
    main()
