"""What `thinrnn bench` measured of a dense and a small model on a CPU, as tables."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.results.tables import markdown

FILE = "speed/bench-cpu.json"
RUNTIMES = {
    "eager": "PyTorch eager",
    "compiled": "PyTorch compiled",
    "onnx": "ONNX Runtime float32",
    "int8": "ONNX Runtime int8",
    "best": "ONNX Runtime int8, 10 best words of the last step",
    "c": "plain C",
}
CASES = {  # what is timed: (steps, caches)
    (30, "warm"): "batch 10, 30 steps",
    (1, "warm"): "batch 1, 1 step",
    (1, "cold"): "batch 1, 1 step, cold caches",
}


class Cpu:
    """A comparison of a dense model and a small one; figures that are missing are None."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found
        self.dense, self.small = [*found["models"]][:2]
        self.threads = sorted({case["threads"] for case in found["cases"]})

    @classmethod
    def read(cls, folder: Path) -> "Cpu | None":
        """Return what is in results/, if it is there."""
        path = folder / FILE
        return cls(json.loads(path.read_bytes())) if path.exists() else None

    def time(self, model: str, runtime: str, threads: int, steps: int, caches: str) -> Any:
        """Return median and quartiles in milliseconds; the batch is 10 for 30 steps, 1 for one."""
        wanted = (runtime, threads, 1 if steps == 1 else 10, steps, caches)
        keys = ("runtime", "threads", "batch", "steps", "caches")
        for case in self.found["cases"]:
            if tuple(case[key] for key in keys) == wanted:
                return case["models"][model]
        return None

    def bytes(self, model: str, runtime: str) -> int | None:
        """Return the size of a model's file."""
        for entry in self.found["memory"]:
            if (entry["model"], entry["runtime"]) == (model, runtime):
                return int(entry["bytes"])
        return None

    def perplexity(self, runtime: str) -> float | None:
        """Return the validation perplexity of the small model in a runtime."""
        for entry in self.found.get("quality", ()):
            if (entry["model"], entry["runtime"]) == (self.small, runtime):
                return float(entry["perplexity"])
        return None

    @property
    def models(self) -> str:
        """Return what was compared, and on which machine."""
        models, machine = self.found["models"], self.found["environment"]
        dense, small = models[self.dense], models[self.small]
        untrained = " (untrained)" if self.dense in self.found["untrained"] else ""
        sizes = re.sub(r", rare (\d+)", r" and \1 for rare words", small["sizes"])
        versions = ", ".join(f"{name} {machine[name]}" for name in ("torch", "onnxruntime"))
        return (
            f"The dense model has embedding and layers of {dense['sizes']}{untrained}. The small "
            f"one is `{self.small}`, {sizes}, with {dense['macs'] / small['macs']:.1f} times fewer "
            "mult-adds. "
            f"Medians on {machine['processor']}, {machine['cores']} cores, {versions}."
        )

    def summary(self) -> str:
        """Return dense and small in the same runtime on one thread, warm."""
        cases = [(30, "warm"), (1, "warm")]
        head = ["both models in"]
        for case in cases:
            head += [f"{CASES[case]}: dense, ms", "small, ms", "speed-up"]
        lines = self._lines(self.threads[0], cases, _milliseconds)
        return markdown(head, [line for line in lines if line[0] != RUNTIMES["best"]])

    def times(self) -> str:
        """Return all times, with quartiles."""
        lines = [
            [str(threads), label, *line]
            for threads in self.threads
            for case, label in CASES.items()
            for line in self._lines(threads, [case], _quartiles)
        ]
        head = ("threads", "case", "both models in", "dense, ms", "small, ms", "speed-up")
        return markdown(head, lines)

    def batches(self) -> str:
        """Return the times of a batch of 10 with 30 steps on one thread."""
        lines = self._lines(self.threads[0], [(30, "warm")], _quartiles)
        return markdown(("", "dense, ms (quartiles)", "small, ms (quartiles)", "speed-up"), lines)

    def stream(self) -> str:
        """Return the times of one step of a stream, with warm caches and with cold ones."""
        found = self._lines(self.threads[0], [(1, "warm"), (1, "cold")], _milliseconds)
        lines = [[*line[:3], *line[4:6]] for line in found]
        return markdown(("one step, ms", "dense", "small", "dense, cold", "small, cold"), lines)

    def gains(self) -> str:
        """Return what 8 bits change in the small model."""
        lines = []
        for runtime in ("onnx", "int8"):
            found = (self.time(self.small, runtime, self.threads[0], n, "warm") for n in (30, 1))
            times = ["-" if time is None else _milliseconds(time) for time in found]
            value = self.perplexity(runtime)
            quality = "-" if value is None else f"{value:.2f}"
            size = _megabytes(self.bytes(self.small, runtime))
            lines.append([RUNTIMES[runtime], size, *times, quality])
        return markdown(("", "file, MB", "10 x 30, ms", "one step, ms", "perplexity"), lines)

    def memory(self) -> str:
        """Return the sizes of files, and the memory of a process that runs one model."""
        lines = []
        for entry in self.found["memory"]:
            if entry["runtime"] != "compiled":  # the same files as eager, memory not measured
                kind = "dense" if entry["model"] == self.dense else "small"
                shown = [_megabytes(entry.get(key)) for key in ("bytes", "peak", "running")]
                start = _megabytes(entry.get("start"))
                lines.append([RUNTIMES[entry["runtime"]], kind, *shown, start])
        head = ("", "model", "file, MB", "peak, MB", "running, MB", "before loading a model, MB")
        return markdown(head, lines)

    def _lines(
        self, threads: int, cases: list[tuple[int, str]], show: Callable[[Any], str]
    ) -> list[list[str]]:
        """Return, for each runtime and all cases, the times of dense and small and their ratio."""
        lines = []
        for runtime, label in RUNTIMES.items():
            cells: list[str] = []
            for steps, caches in cases:
                both = (self.dense, self.small)
                times = [self.time(model, runtime, threads, steps, caches) for model in both]
                if None in times:
                    cells += ["-", "-", "-"]
                else:
                    cells += [*map(show, times), f"{times[0]['median'] / times[1]['median']:.1f}x"]
            if set(cells) != {"-"}:
                lines.append([label, *cells])
        return lines


def _milliseconds(found: dict[str, float], key: str = "median") -> str:
    value = found[key]
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def _quartiles(found: dict[str, float]) -> str:
    low, high = _milliseconds(found, "lower"), _milliseconds(found, "upper")
    return f"{_milliseconds(found)} ({low} to {high})"


def _megabytes(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e6:.1f}"
