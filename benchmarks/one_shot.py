"""When is training worth it? One-shot pruning of a trained model against gates that learn.

    thinrnn train demo --set phases=dense --out runs/dense
    python -m benchmarks.one_shot runs/dense --out results/calibration/one-shot-demo.json

It takes the run of any recipe with a dense model: `ptb-dense-ntasgd` and `squad-dense` work as
well. Each size, score, with and without refitting, is a cell: the model as pruned, and after some
more steps of training. Then one training with gates, from the same weights, stops at each of the
sizes; each of its models gets the same steps at the end. The default one-shot models are also
trained for as many steps as the gates had.

The file is written after each cell; the same command goes on where it was interrupted. "taylor"
uses the loss of the outputs' own best guess, the other scores no labels. `python -m tools.results`
draws the figure.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import parser, write_record
from benchmarks.trained_run import TrainedRun, going_on
from thinrnn._model.copying import copy_module

SCORES = ("reconstruct", "activation", "taylor", "magnitude")
DEFAULT = ("reconstruct", True)  # score, refitted
OF_A_CELL = ("macs", "score", "refitted")


def main() -> None:
    arguments = parser(__doc__, "../calibration/one-shot.json")
    arguments.add_argument("run", type=Path, help="a run folder with a dense model")
    arguments.add_argument("--macs", type=float, nargs="+", default=[0.75, 0.5, 0.25, 0.1])
    arguments.add_argument("--scores", nargs="+", default=SCORES, choices=SCORES)
    arguments.add_argument("--calls", type=int, default=20, help="calibration batches")
    arguments.add_argument("--steps", type=int, help="of training; default: one epoch")
    arguments.add_argument("--gate-steps", type=int, help="of gates; default: four times as many")
    arguments.add_argument("--set", action="append", default=[], help="as of thinrnn train")
    options = arguments.parse_args()
    torch.manual_seed(0)
    clock = time.perf_counter()
    run = TrainedRun(options.run, calls=options.calls, changes=options.set)
    steps = options.steps or run.epoch
    gate_steps = options.gate_steps or 4 * steps
    dense = run.measure(run.model)
    print(f"dense  {run.metric} {dense:.2f}  ({time.perf_counter() - clock:.0f} s)", flush=True)
    found: dict[str, Any] = {"one_shot": [], "gates": [], "as_long": []}
    found = going_on(options, dense, ("calls", "steps", "gate_steps", "set"), found)

    def write() -> None:
        write_record(
            "one-shot pruning against learned gates",
            options,
            device=run.device.type,
            model=run.facts(),
            dense=dense,
            steps=steps,
            gate_steps=gate_steps,
            epoch_steps=run.epoch,
            **found,
        )

    if "dense_trained" not in found:
        found["dense_trained"] = run.measure(run.train_(copy_module(run.model), steps))
        write()
    for row in cells(options.macs, options.scores):
        if any(all(row[k] == old[k] for k in OF_A_CELL) for old in found["one_shot"]):
            continue
        clock = time.perf_counter()
        small = run.calibration.prune(
            macs=row["macs"], score=row["score"], loss=run.loss, refitted=row["refitted"]
        )
        row |= {"real_macs": run.macs(small) / run.full, "pruned": run.measure(small)}
        row |= {"trained": run.measure(run.train_(small, steps))}
        row |= {"seconds": round(time.perf_counter() - clock, 1)}
        found["one_shot"].append(row)
        say(row, run.metric)
        write()
    if not found["gates"]:
        clock = time.perf_counter()
        for size, done, small in run.gated(sorted(options.macs, reverse=True), gate_steps):
            row = {"macs": size, "real_macs": run.macs(small) / run.full, "gate_steps": done}
            row |= {"pruned": run.measure(small), "trained": run.measure(run.train_(small, steps))}
            row |= {"seconds": round(time.perf_counter() - clock, 1)}
            found["gates"].append(row)
            say(row | {"score": "learned gates"}, run.metric)
        write()
    for gate in found["gates"]:
        if any(row["macs"] == gate["macs"] for row in found["as_long"]):
            continue
        score, refitted = DEFAULT
        small = run.calibration.prune(macs=gate["macs"], score=score, refitted=refitted)
        row = {"macs": gate["macs"], "real_macs": run.macs(small) / run.full}
        row |= {"steps": gate["gate_steps"] + steps}
        row |= {
            "pruned": run.measure(small),
            "trained": run.measure(run.train_(small, row["steps"])),
        }
        found["as_long"].append(row)
        say(row | {"score": "as long"}, run.metric)
        write()


def cells(sizes: list[float], scores: list[str]) -> Iterator[dict[str, Any]]:
    """Yield all cells, those of the default first."""
    for score in scores:
        for refitted in (True, False):
            for part in sizes:
                yield {"macs": part, "score": score, "refitted": refitted}


def say(row: dict[str, Any], metric: str) -> None:
    name = row["score"] + {True: ", refitted", False: ", dropped", None: ""}[row.get("refitted")]
    print(
        f"{row['macs']:.0%} {name:<24}{metric} {row['pruned']:.2f}, trained {row['trained']:.2f}"
        + (f"  ({row['seconds']} s)" if "seconds" in row else ""),
        flush=True,
    )


if __name__ == "__main__":
    main()
