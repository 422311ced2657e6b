"""Models, runtimes, threads and shapes against each other.

Every runtime has a process; all of them are asked in turn for one round, in which the process times
its models in turn. A machine that is busy for a while is busy for all of them.
"""

import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from thinrnn.lab.bench.candidates import Candidate
from thinrnn.lab.bench.child import BenchError, Child
from thinrnn.lab.bench.wanted import Wanted
from thinrnn.lab.run.progress import Progress
from thinrnn.timing import largest_cache


@dataclass
class Compared:
    """What was measured, and why the rest was not."""

    cases: list[dict[str, Any]] = field(default_factory=list)
    memory: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)

    def skip(self, runtime: str, threads: int, why: str, progress: Progress) -> None:
        self.skipped.append({"runtime": runtime, "threads": threads, "reason": why})
        progress.line(f"{runtime} skipped: {why}")


def compare(candidates: list[Candidate], wanted: Wanted, progress: Progress) -> Compared:
    """Return times, memory and file sizes of the candidates in all runtimes."""
    found = Compared()
    for threads in wanted.threads:
        _time_all(candidates, wanted, threads, found, progress)
    for case in found.cases:
        _add_ratios(case, found.cases)
    _measure_memory(candidates, wanted, found, progress)
    return found


def _time_all(
    candidates: list[Candidate], wanted: Wanted, threads: int, found: Compared, progress: Progress
) -> None:
    with contextlib.ExitStack() as open_children:
        children: dict[str, Child] = {}
        for runtime in wanted.runtimes:
            child = open_children.enter_context(Child(threads))
            places = {one.name: str(one.place(runtime).resolve()) for one in candidates}
            try:
                child.ask("load", runtime=runtime, threads=threads, folders=places)
                children[runtime] = child
            except BenchError as error:
                found.skip(runtime, threads, str(error), progress)
        for batch, steps, cold in wanted.settings:
            caches = "cold" if cold else "warm"
            progress.line(f"timing {batch} x {steps}, {caches} caches, on {threads}")
            at = {"batch": batch, "steps": steps, "flushed": largest_cache() if cold else 0}

            def leave(runtime: str, error: BenchError, what: str = f"{batch} x {steps}") -> None:
                found.skip(runtime, threads, f"{what}: {error}", progress)
                children.pop(runtime).close()

            for runtime in list(children):
                try:
                    children[runtime].ask("time", **at)  # compiles, allocates, warms up
                except BenchError as error:
                    leave(runtime, error)
            for runtime, (times, repeats) in _samples(
                children, wanted, len(candidates), at, leave
            ).items():
                case = {"runtime": runtime, "threads": threads, "batch": batch, "steps": steps}
                models = {name: describe(times[name], repeats[name]) for name in times}
                found.cases.append({**case, "caches": caches, "models": models})


def _samples(
    children: dict[str, Child],
    wanted: Wanted,
    models: int,
    at: dict[str, Any],
    leave: Callable[[str, BenchError], None],
) -> dict[str, tuple[dict[str, list[float]], dict[str, int]]]:
    found: dict[str, tuple[dict[str, list[float]], dict[str, int]]] = {}
    began, done = time.perf_counter(), 0
    enough = wanted.seconds * models * len(children)
    while children and (done < wanted.passes or time.perf_counter() - began < enough):
        for runtime, child in list(children.items()):
            try:
                answer = child.ask("time", **at)
            except BenchError as error:
                leave(runtime, error)
                found.pop(runtime, None)
                continue
            times, _ = found.setdefault(runtime, ({}, answer["repeats"]))
            for name, one in answer["milliseconds"].items():
                times.setdefault(name, []).append(one)
        done += 1
    return found


def describe(times: list[float], repeats: int) -> dict[str, Any]:
    """Return median and quartiles of milliseconds per call."""
    lower, median, upper = statistics.quantiles(times, n=4, method="inclusive")
    return {"median": median, "lower": lower, "upper": upper, "calls": len(times) * repeats}


def _add_ratios(case: dict[str, Any], cases: list[dict[str, Any]]) -> None:
    """Say how many times faster each model is than the first one here and in other runtimes."""
    alike = ("threads", "batch", "steps", "caches")
    same = [one for one in cases if all(one[key] == case[key] for key in alike)]
    for model in case["models"].values():
        for other in same:
            first = next(iter(other["models"].values()))
            ratio = first["median"] / model["median"]
            if other is case:
                model["speedup"] = ratio
            elif other["runtime"] in ("eager", "onnx") and case["runtime"] != "best":
                # the best words of one step are not the work of all logits
                model[f"speedup_over_{other['runtime']}"] = ratio


def _measure_memory(
    candidates: list[Candidate], wanted: Wanted, found: Compared, progress: Progress
) -> None:
    progress.line("measuring memory, one process for each model and runtime")
    skipped = {one["runtime"] for one in found.skipped}
    for runtime in wanted.runtimes:
        if runtime in skipped:
            continue
        first: dict[str, Any] = {}
        for one in candidates:
            entry: dict[str, Any] = {
                "runtime": runtime,
                "model": one.name,
                "bytes": one.bytes(runtime),
            }
            # the compiler's own memory would hide the model's
            if runtime != "compiled":
                entry |= _memory(one, runtime, wanted)
            first = first or entry
            entry["bytes_ratio"] = first["bytes"] / entry["bytes"]
            found.memory.append(entry)


def _memory(one: Candidate, runtime: str, wanted: Wanted) -> dict[str, Any]:
    folder = str(one.place(runtime).resolve())
    with Child(1) as child:
        try:
            return child.ask(
                "memory", runtime=runtime, threads=1, folder=folder, shapes=wanted.shapes
            )
        except BenchError as error:
            return {"start": None, "peak": None, "running": None, "reason": str(error)}
