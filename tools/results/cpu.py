"""What `thinrnn bench` found about a dense and a small model, and what was asked for."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = "speed/bench-cpu.json"


@dataclass(frozen=True)
class Ratio:
    """A comparison that was asked for: one model in one runtime over another in another."""

    label: str
    over: str  # the runtime of the dense model
    runtime: str  # of the small one
    steps: int
    asked: float | None = None
    caches: str = "warm"


RATIOS = (
    Ratio("both in PyTorch eager", "eager", "eager", 30, 19.4),
    Ratio("both in ONNX Runtime float32 (the fair one)", "onnx", "onnx", 30, 15.5),
    Ratio("dense in PyTorch eager, small in ONNX Runtime int8", "eager", "int8", 30, 85),
    Ratio("dense in ONNX Runtime float32, small in int8", "onnx", "int8", 30, 56),
    Ratio("a stream, dense in ONNX Runtime float32, small in int8", "onnx", "int8", 1, 120),
    Ratio("the same with cold caches", "onnx", "int8", 1, None, "cold"),
)


class Cpu:
    """A comparison of a dense model and a small one; figures that are missing are None."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found
        self.dense, self.small = [*found["models"]][:2]
        self.threads = sorted({case["threads"] for case in found["cases"]})

    @classmethod
    def read(cls, folder: Path) -> "Cpu | None":
        """Return what is in a folder of results, if it is there."""
        path = folder / FILE
        return cls(json.loads(path.read_bytes())) if path.exists() else None

    def time(self, model: str, runtime: str, threads: int, steps: int, caches: str) -> Any:
        """Return median and quartiles in milliseconds; steps 1 is a stream, batch 1."""
        wanted = (runtime, threads, 1 if steps == 1 else 10, steps, caches)
        keys = ("runtime", "threads", "batch", "steps", "caches")
        for case in self.found["cases"]:
            if tuple(case[key] for key in keys) == wanted:
                return case["models"][model]
        return None

    def ratio(self, ratio: Ratio, threads: int) -> float | None:
        """Return how many times longer the dense model takes."""
        one = self.time(self.dense, ratio.over, threads, ratio.steps, ratio.caches)
        other = self.time(self.small, ratio.runtime, threads, ratio.steps, ratio.caches)
        return None if one is None or other is None else one["median"] / other["median"]

    def bytes(self, model: str, runtime: str) -> int | None:
        for entry in self.found["memory"]:
            if (entry["model"], entry["runtime"]) == (model, runtime):
                return int(entry["bytes"])
        return None

    @property
    def file_ratio(self) -> float | None:
        """The file of the dense model in float32 over that of the small one in 8 bits."""
        one, other = self.bytes(self.dense, "onnx"), self.bytes(self.small, "int8")
        return None if one is None or other is None else one / other

    def perplexity(self, runtime: str) -> float | None:
        for entry in self.found.get("quality", ()):
            if (entry["model"], entry["runtime"]) == (self.small, runtime):
                return float(entry["perplexity"])
        return None

    @property
    def loss(self) -> float | None:
        """By which fraction 8 bits make the perplexity of the small model worse."""
        one, other = self.perplexity("onnx"), self.perplexity("int8")
        return None if one is None or other is None else other / one - 1

    @property
    def about(self) -> str:
        """Say what was compared, and where."""
        models, machine = self.found["models"], self.found["environment"]
        dense, small = models[self.dense], models[self.small]
        untrained = ", untrained" if self.dense in self.found["untrained"] else ""
        versions = [f"{name} {machine[name]}" for name in ("torch", "onnxruntime")]
        return (
            f"Dense is {dense['sizes']}{untrained}, small {small['sizes']}, with "
            f"{dense['macs'] / small['macs']:.1f} times fewer mult-adds; on "
            f"{machine['processor']}, {machine['cores']} cores, {', '.join(versions)}. "
            "Medians of calls taken in turn; 10 x 30 is a batch of 10 with 30 steps, a stream is "
            "batch 1 with one step a call."
        )
