"""Time of a training step of a recurrent highway network, computed in several ways, in one run.

    python -m benchmarks.rhn_step --device cuda                 the paper's model, bf16
    python -m benchmarks.rhn_step --width 40 --depth 3 --words 200 --repeats 3        on the CPU
    python -m benchmarks.rhn_step --device cuda --ways "polling graph" "polling:rows=32/16 graph"

A step is everything: embedding, dropout, recurrence, output layer over all words, loss, backward,
clipping, SGD. Every way is a process of its own, so one that crashes or hangs costs no other its
result. All get ready side by side and then take turns, one at a time while the others sleep, so
that a noisy machine cannot favour one. Medians are compared, with each other and with what the
bytes and operations allow; they are printed and written after each round.
"""

import argparse
import json
import os
import platform
import select
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import thinrnn
from benchmarks.record import RESULTS, parser, write_record

PROGRAM = "benchmarks.rhn_way"
WAYS = {
    "cpu": ["reference", "fused"],
    "cuda": ["reference", "pointwise", "polling graph", "pointwise graph", "reference graph"],
}
SHOWN = 25  # kernels of a profile
COMPILED = {"cpu": ["compiled"], "cuda": ["compiled", "compiled graph"]}
# An H200: tensor operations in bf16, main memory, second-level cache (measured elsewhere)
PEAKS = {"operations": 989e12, "memory": 4.8e12, "cache": 5.5e12}


class Way:
    """The process of one way, its times, and why it ended if it did."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self.name = name
        self.times: list[float] = []
        self.kernels: list[dict[str, Any]] = []
        self.last_loss: list[float] = []
        self.about: dict[str, Any] = {}
        self.failure = ""
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        paths = os.pathsep.join(path for path in sys.path if path)
        self.process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM, name, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=os.environ | {"PYTHONFAULTHANDLER": "1", "PYTHONPATH": paths},
            text=True,
        )

    def answer(self, limit: float) -> Any:
        """Return the next answer of the process; stop it and return None after the limit."""
        assert self.process.stdout is not None
        line = ""
        if select.select([self.process.stdout], [], [], max(0.0, limit))[0]:
            line = self.process.stdout.readline()
            reason = "ended"
        else:
            reason = f"gave no answer for {limit:.0f} s"
        if not line:
            self.stop(reason)
            return None
        return json.loads(line)

    def ask(self, what: str, limit: float) -> list[Any]:
        """Return the answer; nothing if the process has ended or ends."""
        assert self.process.stdin is not None
        if self.failure:
            return []
        try:
            print(what, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            self.stop("ended")
            return []
        return self.answer(limit) or []

    def stop(self, reason: str = "") -> None:
        """End the process; with a reason, keep that and the end of its error output."""
        if reason == "ended":
            self.process.wait()
        self.process.kill()
        code = self.process.wait()
        if reason and not self.failure:
            self.errors.seek(0)
            text = self.errors.read().decode(errors="replace").strip()
            self.failure = f"{reason}, exit {code}: {text[-3000:]}"
            print(f"{self.name}: {self.failure}", flush=True)


def counts(options: argparse.Namespace) -> dict[str, Any]:
    """Return operations and bytes of a step, bf16 in the products, and what they take at best."""
    n, tokens = options.width, options.steps * options.batch
    recurrent, inputs, output = 2 * n * n * options.depth, 2 * n * n, options.words * n
    parameters = recurrent + inputs + output + 2 * n * options.depth + options.words
    small_steps = options.steps * options.depth
    # one product forward, two backward: for what it read and for the weights
    operations = 2 * 3 * tokens * (recurrent + inputs + output)
    # every small step reads its matrix again, in both directions
    cache = 2 * options.steps * recurrent * 2
    # parameters: cast to bf16, gradient written, clipped, applied; logits: forward and backward
    memory = parameters * (4 + 2 + 4 + 8 + 12) + tokens * options.words * 2 * 6
    # s, what is read of it, h and t, their gradients: written once, read once
    memory += small_steps * options.batch * n * (4 + 2 + 4 + 4) * 2
    found = {
        "parameters": parameters,
        "operations": operations,
        "cache_bytes": cache,
        "memory_bytes": memory,
        "dependent_small_steps": 2 * small_steps,
    }
    floors = {
        "operations": 1000 * operations / PEAKS["operations"],
        "cache": 1000 * cache / PEAKS["cache"],
        "memory": 1000 * memory / PEAKS["memory"],
    }
    return found | {"floor_milliseconds_on_h200": floors}


def found_by(options: argparse.Namespace, ways: list[Way]) -> dict[str, Any]:
    """Return what is known so far."""
    medians = {way.name: statistics.median(way.times) for way in ways if way.times}
    return {
        "milliseconds": {
            way.name: {"median": medians[way.name], "min": min(way.times), "steps": len(way.times)}
            for way in ways
            if way.times
        },
        "times_faster_than_the_reference": {
            name: medians["reference"] / median
            for name, median in medians.items()
            if "reference" in medians
        },
        "first_loss": {way.name: way.about["loss"] for way in ways if way.about},
        "last_loss": {way.name: way.last_loss[0] for way in ways if way.last_loss},
        "kernels": {way.name: way.kernels for way in ways if way.kernels},
        "failed": {way.name: way.failure for way in ways if way.failure},
        "counts": counts(options),
    }


def write(options: argparse.Namespace, ways: list[Way]) -> dict[str, Any]:
    """Write what is known so far, and return it."""
    about = next((way.about for way in ways if way.about), {})
    machine = {
        "python": platform.python_version(),
        "torch": about.get("torch"),
        "thinrnn": thinrnn.__version__,
        "device": about.get("device") or platform.machine(),
        "threads": about.get("threads"),
    }
    found = found_by(options, ways)
    what = "training step of a recurrent highway network, in several ways"
    write_record(what, options, machine=machine, **found)
    return found


def show(result: dict[str, Any]) -> None:
    """Print the table."""
    faster = result["times_faster_than_the_reference"]
    for name, found in result["milliseconds"].items():
        compared = f"{faster[name]:6.2f} times as fast as the reference" if faster else ""
        print(f"{name:20} {found['median']:9.3f} ms  {compared}", flush=True)


def show_kernels(way: Way) -> None:
    """Print where the time of a step goes."""
    total = sum(found["microseconds"] for found in way.kernels)
    calls = sum(found["calls"] for found in way.kernels)
    print(f"{way.name}: {total:.0f} us in {calls:.0f} kernels of a step")
    for found in way.kernels[:SHOWN]:
        print(f"{found['microseconds']:9.1f} us {found['calls']:7.1f}  {found['kernel'][:90]}")
    sys.stdout.flush()


def measure(options: argparse.Namespace) -> list[Way]:
    """Run every way in turns; write what is known after each round."""
    names = options.ways or WAYS[options.device] + (
        COMPILED[options.device] if options.compiled else []
    )
    settings = {k: v for k, v in vars(options).items() if k not in ("out", "ways", "profile")}
    end = time.monotonic() + options.seconds
    ways = [Way(name, settings) for name in names]
    try:
        for way in ways:
            way.about = way.answer(end - time.monotonic()) or {}
            if way.about:
                print(f"{way.name}: ready, loss {way.about['loss']:.4f}", flush=True)
        for number in range(options.rounds):
            for way in ways:
                count = options.repeats if "graph" in way.name else options.slow_repeats
                way.times += way.ask(str(count), options.turn)
            print(f"round {number + 1} of {options.rounds}")
            show(write(options, ways))
        for way in ways:
            way.last_loss = way.ask("loss", options.turn)
            if way.name in options.profile:
                way.kernels = way.ask("profile", options.turn)
                show_kernels(way)
        write(options, ways)
    finally:
        for way in ways:
            way.stop()
    return ways


def main() -> None:
    arguments = parser(__doc__, "rhn-step-DEVICE.json")
    arguments.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments.add_argument("--ways", nargs="+", default=None, help="only these")
    arguments.add_argument("--words", type=int, default=10_000)
    arguments.add_argument("--width", type=int, default=830)
    arguments.add_argument("--depth", type=int, default=10)
    arguments.add_argument("--batch", type=int, default=20)
    arguments.add_argument("--steps", type=int, default=35)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--repeats", type=int, default=20, help="steps of a turn")
    arguments.add_argument("--slow-repeats", type=int, default=3, help="of what is no CUDA graph")
    arguments.add_argument("--seconds", type=float, default=75, help="until all must be ready")
    arguments.add_argument("--turn", type=float, default=20, help="seconds that a turn may take")
    arguments.add_argument("--gated", action="store_true", help="with gates and penalty")
    arguments.add_argument(
        "--as-trained", action="store_true", help="padded sizes and the optimizer of a run"
    )
    arguments.add_argument("--profile", nargs="+", default=[], help="ways to take apart by kernels")
    arguments.add_argument("--compiled", action="store_true", help="also torch.compile")
    options = arguments.parse_args()
    if options.out.stem.endswith("DEVICE"):
        options.out = RESULTS / f"rhn-step-{options.device}.json"
    ways = measure(options)
    sys.exit(1 if any(way.failure for way in ways) else 0)


if __name__ == "__main__":
    main()
