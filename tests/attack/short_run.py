"""A run of few steps and many checkpoints, to be broken off anywhere."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attack.conftest import TINY, Outcome, attempt

from thinrnn.lab.cli import main
from thinrnn.lab.run.metrics import read_metrics

SHORT = {
    **TINY,
    "phases": "gated",
    "bptt": 30,
    "log_every": 2,
    "checkpoint_steps": 2,
    "checkpoint_seconds": 1e9,
}


def arguments(texts: Path, folder: Path) -> list[Any]:
    """Return the command that begins the run, or goes on with it."""
    if (folder / "config.json").exists():
        return ["train", "--resume", folder]
    files = [part for n in ("train", "valid") for part in (f"--{n}", texts / f"{n}.txt")]
    settings = [part for k, v in SHORT.items() for part in ("--set", f"{k}={v}")]
    return ["train", "lm", *files, "--out", folder, *settings]


def train(texts: Path, folder: Path) -> Outcome:
    """Begin the run or go on with it, in this process."""
    return attempt(*arguments(texts, folder))


def train_here(texts: Path, folder: Path) -> None:
    """Do the same as the program itself does, and end this process."""
    main([str(argument) for argument in arguments(texts, folder)])


def result(folder: Path) -> tuple[Any, ...]:
    """Return what must not depend on faults: weights, metrics and sizes."""
    weights = (folder / "model/model.safetensors").read_bytes()
    events = [{**event, "seconds": 0} for event in read_metrics(folder / "metrics.jsonl")]
    small = json.loads((folder / "small.json").read_text())
    return weights, events, small["neurons"], small["valid_perplexity"]


def fork(work: Callable[[], object], log: Path) -> int:
    """Start a process that does something as a program of its own would; return its number.

    What it prints goes to LOG.out and LOG.err.
    """
    child = os.fork()
    if child:
        return child
    for number, stream in ((1, "out"), (2, "err")):
        handle = os.open(f"{log}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
    code = 70  # of a process that ends in a traceback
    try:
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work()
        code = 0
    except SystemExit as left:
        code = int(left.code or 0)
    except BaseException as error:
        print(f"Traceback: {error!a}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(child: int) -> int:
    """Wait for a process and return its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
