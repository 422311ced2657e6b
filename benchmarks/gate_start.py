"""Gates that begin ranked by `neuron_scores` against gates that begin alike, on a trained model.

It takes the run of any recipe with a dense model. Small:

    thinrnn train demo --set phases=dense --out runs/dense
    python -m benchmarks.gate_start runs/dense --out results/calibration/gate-start-demo.json

Penn Treebank and SQuAD, from the runs of `benchmarks.one_shot` (on an H200 about 250 and 500 s):

    python -m benchmarks.gate_start runs/ptb --set small_dropout=0.3 --set gate_lr=0.02 \\
        --gate-steps 664 --steps 332 --seconds 300 --out results/calibration/gate-start-ptb.json
    python -m benchmarks.gate_start runs/squad --rate 0.2 --gate-steps 600 --steps 300 \\
        --seconds 540 --out results/calibration/gate-start-squad.json

For each size, seed and start, gates are attached to the trained weights and a target closes them
while the training goes on; the small model then takes further steps at a rate that falls to zero.
The file is written after each; `--seconds` stops after the cell in which they are over, and the
same command goes on where it stopped.
"""

import statistics
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import parser, write_record
from benchmarks.trained_run import TrainedRun, going_on

STARTS = ("alike", "reconstruct")
OF_A_CELL = ("macs", "gate_steps", "start", "seed")
SAME = ("calls", "steps", "rate", "set")  # in all cells of a file


def main() -> None:
    arguments = parser(__doc__, "../calibration/gate-start.json")
    arguments.add_argument("run", type=Path, help="a run folder with a dense model")
    arguments.add_argument("--macs", type=float, nargs="+", default=[0.5, 0.25])
    arguments.add_argument("--gate-steps", type=int, nargs="+", default=[300, 1200])
    arguments.add_argument("--steps", type=int, default=300, help="of the small model")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--rate", type=float, default=0.05, help="part of the run's")
    arguments.add_argument("--seconds", type=float, help="then stop")
    arguments.add_argument("--calls", type=int, default=20, help="calibration batches")
    arguments.add_argument("--set", action="append", default=[], help="as of thinrnn train")
    options = arguments.parse_args()
    begun = time.perf_counter()
    run = TrainedRun(options.run, calls=options.calls, changes=options.set)
    options.macs = run.reachable(options.macs)
    dense = run.measure(run.model)
    print(f"dense  {run.metric} {dense:.2f}", flush=True)
    found = going_on(options, dense, SAME, {"cells": []})["cells"]
    scores = run.calibration.errors("reconstruct")
    cells = [
        {"macs": macs, "gate_steps": steps, "start": start, "seed": seed}
        for steps in options.gate_steps
        for macs in options.macs
        for seed in range(options.seeds)
        for start in STARTS
    ]
    for cell in cells:
        if any(all(cell[name] == old[name] for name in OF_A_CELL) for old in found):
            continue
        clock = time.perf_counter()
        torch.manual_seed(cell["seed"])
        start = scores if cell["start"] == "reconstruct" else None
        ((_, _, small),) = run.gated([cell["macs"]], cell["gate_steps"], options.rate, start)
        reached = {"pruned": run.measure(small)}
        reached |= {"trained": run.measure(run.train_(small, options.steps, options.rate))}
        reached |= {"seconds": round(time.perf_counter() - clock, 1)}
        found.append(cell | reached)
        print(*(f"{name} {value}" for name, value in found[-1].items()), sep="  ", flush=True)
        write_record(
            "how gates begin on a trained model",
            options,
            device=run.device.type,
            model=run.facts(),
            dense=dense,
            means=means(found),
            cells=found,
        )
        if options.seconds and time.perf_counter() - begun > options.seconds:
            print(f"{options.seconds:.0f} s are over: the same command goes on.", flush=True)
            break


def means(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and standard deviation over the seeds."""
    keys = ("macs", "gate_steps", "start")
    groups: dict[tuple[Any, ...], list[float]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell[name] for name in keys), []).append(cell["trained"])
    return [
        dict(zip(keys, group, strict=True))
        | {
            "seeds": len(values),
            "mean": statistics.mean(values),
            "deviation": statistics.stdev(values) if len(values) > 1 else None,
        }
        for group, values in groups.items()
    ]


if __name__ == "__main__":
    main()
