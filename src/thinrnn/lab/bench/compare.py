"""Models compared across runtimes, threads and shapes.

Each runtime has a worker process. The workers take turns, one round each, and in its round a worker
times its models in turn: a machine that is busy for a while is busy for all of them.
"""

import contextlib
import functools
import statistics
import tempfile
import time
from collections.abc import Callable, Container
from importlib import metadata
from pathlib import Path
from typing import Any

from thinrnn.errors import ExportError, MissingExtraError
from thinrnn.lab import recipes
from thinrnn.lab.bench.candidates import Candidate, add_c, add_edge, make_candidate
from thinrnn.lab.bench.request import Request
from thinrnn.lab.bench.runtimes import EDGE_FILES, FILES
from thinrnn.lab.bench.table import case_title
from thinrnn.lab.bench.worker import BenchError, Worker
from thinrnn.lab.run.environment import command_line, environment
from thinrnn.lab.run.errors import InputError
from thinrnn.lab.run.progress import Progress
from thinrnn.timing import largest_cache, timing_of

RUNTIMES_BY_FAIRNESS = ("onnx", "c", "litert", "executorch", "compiled", "eager", "int8", "best")

Values = dict[str, Any]  # a part of the result, as JSON values


def compare_folders(
    folders: dict[str, Path], recipe: str, request: Request, progress: Progress
) -> Values:
    """Return the comparison of the models in folders as JSON values.

    The first model is the dense one. Where there is none, or `request.dense` gives its shape, a
    language model is compared with an untrained one: weights take the same time whatever they are.
    """
    with tempfile.TemporaryDirectory(prefix="thinrnn-bench-") as temporary:
        place = Path(temporary)
        is_text = recipe == "language_model"
        has_dense = any(name.split("/")[-1] == "dense" for name in folders)
        untrained = is_text and (request.dense is not None or not has_dense)
        if untrained:
            build = recipes.language_model_recipe().build_dense
            like = next(iter(folders.values()))
            dense = build(like, place / "untrained", request.dense)
            folders = {"dense": dense, **{n: f for n, f in folders.items() if n != "dense"}}
        session = _Session(request, progress)
        candidates = session.prepare(folders, recipe, place)
        quality = session.perplexities(candidates[1:] if untrained else candidates)
        for threads in request.threads:
            session.time(candidates, threads)
        _add_ratios(session.cases)
        sizes = session.sizes(candidates)
    return {
        "command": command_line(),
        "models": {one.name: one.size for one in candidates},
        "untrained": ["dense"] if untrained else [],
        "headline": headline(session.cases),
        "cases": session.cases,
        "memory": sizes,
        "quality": quality,
        "skipped": session.skipped,
        "environment": _machine(session.runtimes),
    }


class _Session:
    """One comparison: the runtimes that work, what was measured, and what was skipped."""

    def __init__(self, request: Request, progress: Progress) -> None:
        self.request, self.progress = request, progress
        self.runtimes = list(request.runtimes)
        self.cases: list[Values] = []
        self.skipped: list[Values] = []

    def skip(self, runtime: str, reason: str, **case: int) -> None:
        self.skipped.append({"runtime": runtime, **case, "reason": reason})
        self.progress.line(f"skipped {runtime}: {reason}")

    def leave_out(self, runtimes: Container[str], reason: str) -> None:
        """Skip these runtimes from now on."""
        for runtime in [name for name in self.runtimes if name in runtimes]:
            self.runtimes.remove(runtime)
            self.skip(runtime, reason)

    def prepare(self, folders: dict[str, Path], recipe: str, place: Path) -> list[Candidate]:
        """Return the candidates; ONNX Runtime is skipped if it is missing or a model refuses."""
        if set(self.runtimes) & set(FILES):
            from thinrnn.onnx.runtime import require_onnx

            try:
                require_onnx()
            except MissingExtraError as error:
                self.leave_out(FILES, str(error))
        candidates = []
        for number, (name, folder) in enumerate(folders.items()):
            self.progress.line(f"preparing {name}")
            files = place / str(number)
            try:
                one = make_candidate(name, recipe, folder, files, self.runtimes)
            except ExportError as error:
                self.leave_out(FILES, f"{name}: {error}")
                one = make_candidate(name, recipe, folder, files, self.runtimes)
            candidates.append(one)
        self._add_files("c", candidates, add_c)
        for runtime in EDGE_FILES:
            self._add_files(runtime, candidates, functools.partial(add_edge, runtime=runtime))
        if not self.runtimes:
            raise InputError(f"there is nothing to time: {self.skipped[0]['reason']}")
        return candidates

    def _add_files(
        self, runtime: str, candidates: list[Candidate], add: Callable[[Candidate], None]
    ) -> None:
        try:
            for one in candidates if runtime in self.runtimes else []:
                add(one)
        except (ExportError, MissingExtraError) as error:
            self.leave_out((runtime,), str(error))

    def perplexities(self, candidates: list[Candidate]) -> list[Values]:
        """Return the perplexity of each model in ONNX Runtime on the request's text."""
        found: list[Values] = []
        text = self.request.text
        if text is None:
            return found
        for one in candidates:
            measure_on = recipes.language_model_recipe().measure_on
            for runtime in ("onnx", "int8"):  # the best words have no perplexity
                if runtime in self.runtimes:
                    self.progress.line(f"measuring {one.name} in {runtime} on {text.name}")
                    value = measure_on(text, one.files / FILES["onnx"])(one.files / FILES[runtime])
                    entry = {"model": one.name, "runtime": runtime, "perplexity": value}
                    found.append({**entry, "text": text.name})
        return found

    def time(self, candidates: list[Candidate], threads: int) -> None:
        """Add the cases of all runtimes and shapes with this number of threads."""
        with contextlib.ExitStack() as stack:
            workers: dict[str, Worker] = {}
            for runtime in self.runtimes:
                worker = stack.enter_context(Worker(threads))
                models = {one.name: one.place(runtime) for one in candidates}
                try:
                    worker.call("load", runtime=runtime, threads=threads, models=models)
                    workers[runtime] = worker
                except BenchError as error:
                    self.skip(runtime, str(error), threads=threads)
            for batch, steps, cold in self.request.settings:
                caches = "cold" if cold else "warm"
                case = {"threads": threads, "batch": batch, "steps": steps, "caches": caches}
                self.progress.line(f"timing {case_title(case)}")
                for runtime, models in self._rounds(workers, case, len(candidates)).items():
                    self.cases.append({"runtime": runtime, **case, "models": models})

    def _rounds(self, workers: dict[str, Worker], case: Values, models: int) -> Values:
        """Return the times of each runtime's models; a worker that fails is closed and removed."""
        batch, steps = case["batch"], case["steps"]
        flush = largest_cache() if case["caches"] == "cold" else 0
        answers: dict[str, list[Values]] = {}

        def one_round() -> None:
            for runtime, worker in list(workers.items()):
                try:
                    answer = worker.call("time", batch=batch, steps=steps, flush=flush)
                    answers.setdefault(runtime, []).append(answer)
                except BenchError as error:
                    self.skip(runtime, f"{batch} x {steps}: {error}", threads=case["threads"])
                    workers.pop(runtime).close()
                    answers.pop(runtime, None)

        one_round()  # compiles, allocates, warms up
        answers.clear()
        began, done = time.perf_counter(), 0
        enough = self.request.seconds * models * len(workers)
        while workers and (done < self.request.rounds or time.perf_counter() - began < enough):
            one_round()
            done += 1
        return {runtime: _describe(found) for runtime, found in answers.items()}

    def sizes(self, candidates: list[Candidate]) -> list[Values]:
        """Return the file size of each model and runtime, and the memory if requested."""
        if self.request.memory:
            self.progress.line("measuring memory, one process for each model and runtime")
        skipped = {one["runtime"] for one in self.skipped}
        found = []
        for runtime in [name for name in self.runtimes if name not in skipped]:
            for one in candidates:
                size = one.bytes(runtime)
                entry = {"runtime": runtime, "model": one.name, "bytes": size}
                # the compiler's own memory would hide the model's
                if self.request.memory and runtime != "compiled":
                    entry |= self._memory(one, runtime)
                found.append({**entry, "bytes_ratio": candidates[0].bytes(runtime) / size})
        return found

    def _memory(self, one: Candidate, runtime: str) -> Values:
        shapes = self.request.shapes
        with Worker(1) as worker:
            try:
                return worker.call(
                    "memory", runtime=runtime, threads=1, model=one.place(runtime), shapes=shapes
                )
            except BenchError as error:
                return {"start": None, "peak": None, "running": None, "reason": str(error)}


def _describe(answers: list[Values]) -> Values:
    """Return median and quartiles of milliseconds per call, and if they are noisy, by model."""
    found = {}
    for name, repeats in answers[0]["repeats"].items():
        times = [answer["milliseconds"][name] for answer in answers]
        lower, median, upper = statistics.quantiles(times, n=4, method="inclusive")
        found[name] = {"median": median, "lower": lower, "upper": upper}
        timing = timing_of(times, repeats)
        found[name] |= {"calls": timing.calls, "noisy": timing.is_noisy}
    return found


def _add_ratios(cases: list[Values]) -> None:
    """Add how many times faster each model is than the first one, here and in other runtimes."""
    alike = ("threads", "batch", "steps", "caches")
    for case in cases:
        for other in cases:
            if any(other[key] != case[key] for key in alike):
                continue
            first = next(iter(other["models"].values()))["median"]
            for model in case["models"].values():
                if other is case:
                    model["speedup"] = first / model["median"]
                elif other["runtime"] in ("eager", "onnx") and case["runtime"] != "best":
                    # the best words of one step are less work than all logits
                    model[f"speedup_over_{other['runtime']}"] = first / model["median"]


def headline(cases: list[Values]) -> Values | None:
    """Return the fair comparison: both models in the same runtime, ONNX Runtime if it was timed.

    PyTorch eager rearranges the weights of large layers on each call, which favours small models,
    and its overhead per call hides the size of small layers.
    """
    by_runtime = {case["runtime"]: case for case in reversed(cases)}  # the first case of each
    case = next((by_runtime[name] for name in RUNTIMES_BY_FAIRNESS if name in by_runtime), None)
    if case is None or len(case["models"]) < 2:
        return None
    first, *others = case["models"]
    model = next((name for name in others if name.split("/")[-1] == "small"), others[0])
    keys = ("runtime", "threads", "batch", "steps", "caches")
    ratio = case["models"][model]["speedup"]
    noisy = any(case["models"][name].get("noisy", False) for name in (first, model))
    found = {"model": model, "over": first, "speedup": ratio, "noisy": noisy}
    return {**{key: case[key] for key in keys}, **found}


def _machine(runtimes: list[str]) -> Values:
    found = {**environment(), "cache": largest_cache()}
    found.pop("threads")  # each case has its own
    packages = {"executorch": "executorch", "litert": "ai-edge-litert"}
    names = {packages.get(one, "onnxruntime" if one in FILES else "") for one in runtimes}
    found |= {name: metadata.version(name) for name in sorted(names - {""})}
    return found
