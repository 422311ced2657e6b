"""What benchmarks share: medians of calls that take turns, and a file with what was found."""

import argparse
import importlib.metadata
import shlex
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from thinrnn.lab.run.environment import environment
from thinrnn.lab.run.files import write_json
from thinrnn.timing import warm_clock
from tools.results.paths import without_paths


def medians(calls: Mapping[str, Callable], rounds: int) -> dict[str, float]:
    """Return the milliseconds of each call, all warm."""
    clock = warm_clock(calls)
    times = [clock.round() for _ in range(rounds)]
    return {name: statistics.median(one[name] for one in times) for name in calls}


def command_line() -> str:
    """Return how this program was called, without paths of this machine."""
    return str(without_paths(shlex.join(["python", *sys.argv])))


def write_record(
    what: str, options: argparse.Namespace, *, device: str = "cpu", **found: Any
) -> None:
    """Write what was found to `options.out`, with command, settings, versions and machine."""
    settings = {k: v for k, v in vars(options).items() if not isinstance(v, Path)}
    versions = {"onnxruntime": importlib.metadata.version("onnxruntime")}
    record = {
        "what": what,
        "command": command_line(),
        "settings": settings,
        **found,
        "environment": environment(device) | (versions if device == "cpu" else {}),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(options.out, record)
    print(f"wrote {options.out}")
