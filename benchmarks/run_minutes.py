"""How long whole runs take: their first epochs are trained, the others take as long as the last.

    python -m benchmarks.run_minutes --data data/ptb                ptb-paper and its dense model
    python -m benchmarks.run_minutes --data data/ptb --runs ptb-rhn-plain=28 ptb-rhn-dense=5

A run is a preset with the number of epochs after which nothing changes its speed any more: those of
`ptb-paper` get shorter until its size is reached, those of a dense model are all alike. Each run is
stopped there; its remaining epochs count as the median of the last ones. Nothing else may use the
GPU meanwhile.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import parser, write_record
from thinrnn.lab.run.metrics import read_metrics

RUNS = ["ptb-dense-ntasgd=5", "ptb-paper=24"]
LAST = 4  # epochs whose median is taken for those that are left out


def ends_of_epochs(run: Path) -> list[float]:
    """Return when each epoch ended, in seconds since the run began."""
    events = read_metrics(run / "metrics.jsonl")
    return [event["seconds"] for event in events if event["event"] == "epoch"]


def train(preset: str, epochs: int, options: argparse.Namespace, run: Path) -> dict[str, Any]:
    """Train so many epochs of a preset and return what all of them would take."""
    command = [sys.executable, "-m", "thinrnn.lab.cli", "train", preset, "--out", str(run)]
    command += ["--data", str(options.data)] if options.data else []
    command += ["--set", "tensorboard=false", "--set", "checkpoint_seconds=3600"]
    command += [part for change in options.set for part in ("--set", change)]
    with open(run.with_suffix(".log"), "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        while process.poll() is None and len(ends_of_epochs(run)) < epochs:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.wait()
    ends = ends_of_epochs(run)[:epochs]
    if len(ends) < epochs:
        raise SystemExit(f"{preset} ended early: {run.with_suffix('.log').read_text()[-2000:]}")
    config = json.loads((run / "config.json").read_text())
    whole = config["settings"]["epochs"]
    each = [end - before for before, end in zip([0.0, *ends], ends, strict=False)]
    steady = statistics.median(each[1:][-LAST:])
    return {
        "epochs": whole,
        "trained": epochs,
        "seconds_of_epochs": [round(seconds, 3) for seconds in each],
        "seconds_of_a_later_epoch": round(steady, 3),
        "minutes": (ends[-1] + (whole - epochs) * steady) / 60,
    }


def main() -> None:
    arguments = parser(__doc__, "run-minutes-cuda.json")
    arguments.add_argument("--data", type=Path, help="folder of the text, if it has one")
    arguments.add_argument("--runs", nargs="+", default=RUNS, metavar="PRESET=EPOCHS")
    arguments.add_argument("--set", action="append", default=[], help="as of thinrnn train")
    options = arguments.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for run in options.runs:
            preset, _, epochs = run.partition("=")
            found[preset] = train(preset, int(epochs), options, Path(folder) / preset)
            print(f"{preset:<20} {found[preset]['minutes']:6.2f} minutes", flush=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    write_record("minutes of whole runs, by their first epochs", options, device=device, runs=found)


if __name__ == "__main__":
    main()
