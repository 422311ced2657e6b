"""What benchmarks share: options, medians of calls that take turns, and a file with the results."""

import argparse
import importlib.metadata
import importlib.util
import json
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

Call = Callable[[], Any]
RESULTS = Path("results/speed")


def parser(doc: str | None, file: str) -> argparse.ArgumentParser:
    """Return a parser with the first line of the docstring and --out, by default this file."""
    made = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    made.add_argument("--out", type=Path, default=RESULTS / file, help="default: %(default)s")
    return made


def medians(
    calls: Mapping[str, Call], rounds: int, *, now: Callable[[], float] | None = None
) -> dict[str, float]:
    """Return the median milliseconds of each call, all warm."""
    clock = warm_clock(calls, now=now)
    times = [clock.round() for _ in range(rounds)]
    return {name: statistics.median(one[name] for one in times) for name in calls}


def command_line() -> str:
    """Return how to run this program again."""
    program = f"benchmarks.{Path(sys.argv[0]).stem}"
    return shlex.join(["python", "-m", program, *sys.argv[1:]])


def write_record(
    what: str,
    options: argparse.Namespace,
    *,
    device: str = "cpu",
    machine: dict[str, Any] | None = None,
    **found: Any,
) -> None:
    """Write what was found to `options.out`, with command, settings, versions and machine."""
    settings = {key: value for key, value in vars(options).items() if key != "out"}
    versions = {
        name: importlib.metadata.version(name)
        for name in ("onnxruntime",)
        if device == "cpu" and importlib.util.find_spec(name)
    }
    record = {
        "what": what,
        "command": without_paths(command_line()),
        "settings": without_paths(json.loads(json.dumps(settings, default=str))),
        **found,
        "environment": machine or environment(device) | versions,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(options.out, record)
    print(f"wrote {options.out}", flush=True)
