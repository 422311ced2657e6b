"""Training time in several processes: the same global batch, shared by 1, 2, ... of them.

    python -m benchmarks.scaling                            the dense model of the demo, here
    python -m benchmarks.scaling --processes 1 2 4 8 --set batch=256 --set device=cuda
    python -m benchmarks.scaling --run 16=/shared/runs/a    with a run that a cluster has made

Each process has one thread, so two of them need two free cores; `load` says how many processes
wanted one before it began. The time of a step is the median over the lines of the log, which say
how long the steps since the last one took; of the rounds, which take turns, the fastest counts.
Efficiency is the time of one process over the time of n, divided by n: 1.0 where each process adds
its whole speed.
"""

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import parser, write_record
from thinrnn.lab.run.metrics import read_metrics

USUAL = (
    *("phases=dense", "epochs=1", "log_every=10", "bench_seconds=0"),
    *("tensorboard=false", "checkpoint_seconds=3600"),
)


def seconds_of_a_step(processes: int, preset: str, changes: list[str], run: Path) -> float:
    """Train in so many processes and return how long a step takes."""
    launcher = ["torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    command = [sys.executable, "-m", *launcher, "-m", "thinrnn.lab.cli", "train", preset]
    sets = [part for change in (*USUAL, *changes) for part in ("--set", change)]
    log = run.with_suffix(".log")
    with open(log, "wb") as out:
        ended = subprocess.run(
            [*command, "--out", str(run), *sets],
            stdout=out,
            stderr=out,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
        )
    if ended.returncode:
        raise SystemExit(f"exit code {ended.returncode}: {log.read_text()[-2000:]}")
    return seconds_in(run)


def seconds_in(run: Path) -> float:
    """Return how long a step of the first phase of a run took."""
    events = [event for event in read_metrics(run / "metrics.jsonl") if event["event"] == "step"]
    steps = [event for event in events if event["phase"] == events[0]["phase"]]
    if len(steps) < 2:
        raise SystemExit(f"{run} has too few steps in its log: set log_every=10")
    return statistics.median(
        (after["seconds"] - before["seconds"]) / (after["step"] - before["step"])
        for before, after in itertools.pairwise(steps)
    )


def main() -> None:
    arguments = parser(__doc__, "scaling.json")
    arguments.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    arguments.add_argument("--preset", default="demo")
    arguments.add_argument("--rounds", type=int, default=3, help="the fastest counts")
    arguments.add_argument("--set", action="append", default=[], help="as of thinrnn train")
    arguments.add_argument(
        "--run",
        action="append",
        default=[],
        metavar="N=RUN",
        help="a run in N processes",
    )
    options = arguments.parse_args()
    load = round(os.getloadavg()[0], 1)
    times: dict[int, list[float]] = {count: [] for count in options.processes}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for count, found in times.items():  # in turn, so that a noisy minute hits all
                run = Path(folder) / f"{count}-{number}"
                found.append(seconds_of_a_step(count, options.preset, options.set, run))
    for count, _, run in (given.partition("=") for given in options.run):
        times.setdefault(int(count), []).append(seconds_in(Path(run)))
    fewest = min(times)
    alone = min(times[fewest])
    rows: dict[str, Any] = {}
    for count, found in times.items():
        best = min(found)
        efficiency = alone * fewest / (best * count)
        rows[str(count)] = {
            "milliseconds_per_step": round(1000 * best, 2),
            "all_rounds": [round(1000 * one, 2) for one in found],
            "speed_up": round(alone / best, 3),
            "efficiency": round(efficiency, 3),
        }
        print(f"{count:>3} processes  {1000 * best:8.2f} ms/step  efficiency {efficiency:.2f}")
    device = "cuda" if "device=cuda" in options.set and torch.cuda.is_available() else "cpu"
    write_record(
        "training steps by number of processes", options, device=device, load=load, processes=rows
    )


if __name__ == "__main__":
    main()
