"""Latency: what a call of the small model takes on this machine, measured over sizes.

The model is cut to some sizes, exported and timed. The time at other sizes follows from a fit: so
many milliseconds per call, and so many per element of each parameter.
"""

import hashlib
import json
import math
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from thinrnn._files import cache_folder, read_json, write_safely
from thinrnn._gates.attached import Attached
from thinrnn._gates.sizes import Sizes
from thinrnn._model.tree import call_arguments, tensors_in
from thinrnn._surgery.compact import small_copy
from thinrnn._surgery.cut import neurons_to_keep
from thinrnn.errors import TargetError
from thinrnn.onnx._trace.arguments import Arguments
from thinrnn.onnx.export import export_onnx
from thinrnn.onnx.runtime import OnnxFile, require_onnx
from thinrnn.timing import TOO_NOISY, Call, Timing, processor, timing_of, torch_threads, warm_clock

if TYPE_CHECKING:
    from thinrnn._file_formats import LatencyPoint

Runtime = Literal["onnx", "torch"]
T = TypeVar("T")
Kept = dict[str, int]  # group -> neurons left
EQUAL = 6  # sizes, from the full one down, at which all groups keep the same share
UNEQUAL = 10  # sizes near the goal at which they do not
ENOUGH = 8  # of these, where a table has some already
SPREAD = 0.35  # standard deviation of the logarithm of a group's share
SECONDS = 0.4  # about how long each size is timed
ROUNDS = 9  # at least
REACH = 0.3  # how far from the goal, in its logarithm, a time counts for the fit
PRIOR = 1e-3  # how much the fit leans on "every mult-add takes as long"
SWEEPS = 1000  # over the unknowns of the fit


class Latency:
    """Measures what a call takes on this machine: what `Target(latency=...)` counts with.

    The first `Target` for a model cuts it to about 16 sizes, exports and times them, which takes a
    minute or two. The table is kept in a file, so later ones start at once. Keep the machine idle
    meanwhile.

    Args:
        example: What a call is made with: a tensor, a tuple of arguments, or a dictionary of
            keyword arguments. Its batch and length are those that are timed.
        runtime: "onnx" times the exported file in ONNX Runtime (float32), "torch" the small model
            in eager PyTorch.
        streaming: Time the exported file with its states as inputs, see `export_onnx`.
        threads: The CPU threads of a call.
        file: Where the table is kept; by default a file of the user's cache folder.

    Raises:
        TargetError: The runtime is unknown, or streaming is given for torch.
        MissingExtraError: The runtime is "onnx", and the extra "onnx" is not installed.

    Examples:
        >>> model = nn.Sequential(nn.Embedding(50, 32), nn.LSTM(32, 64))
        >>> tokens = torch.zeros(20, 1, dtype=torch.long)
        >>> latency = Latency(tokens, runtime="torch", threads=1)
        >>> latency.time({"full": model})["full"].median > 0
        True
    """

    def __init__(
        self,
        example: Any,
        *,
        runtime: Runtime = "onnx",
        streaming: bool = False,
        threads: int = 1,
        file: str | Path | None = None,
    ) -> None:
        if runtime not in get_args(Runtime):
            raise TargetError(f"runtime={runtime!r}: write one of {', '.join(get_args(Runtime))}.")
        if streaming and runtime != "onnx":
            raise TargetError("streaming=True times a file with states: it needs runtime='onnx'.")
        if runtime == "onnx":
            require_onnx()
        self.example = example
        self.runtime: Runtime = runtime
        self.streaming = streaming
        self.threads = threads
        self.file = None if file is None else Path(file)

    def time(self, models: dict[str, nn.Module]) -> dict[str, Timing]:
        """Time models without gates side by side, as `Target` does.

        Args:
            models: The models, by name.

        Returns:
            The timing of each, in milliseconds.
        """
        with tempfile.TemporaryDirectory() as folder:
            calls = {
                name: self._call(model, Path(folder, f"{place}.onnx"))
                for place, (name, model) in enumerate(_shown(models.items()))
            }
            rounds: list[dict[str, float]] = []
            with torch_threads(self.threads), torch.inference_mode():
                clock = warm_clock(calls)
                began = time.perf_counter()
                while len(rounds) < ROUNDS or time.perf_counter() - began < SECONDS * len(calls):
                    rounds.append(clock.round())
        return {n: timing_of([one[n] for one in rounds], clock.repeats[n]) for n in models}

    def fit(self, gated: Attached, goal: float) -> tuple[Tensor, float]:
        """Return milliseconds per element of each parameter, and per call, right near a goal.

        Args:
            gated: The gates of a model, as `Target` has them.
            goal: Milliseconds.
        """
        table = _Table(self._file(gated), self._about(gated))
        table.add(self._measure(gated, _equal_shares(gated.sizes), but=table.points))
        around = [point for point in table.points if _is_near(point.milliseconds, goal)]
        if len(around) < ENOUGH:
            share = _share_at(gated.sizes, fit_times(gated.sizes, table.points, goal), goal)
            wanted = _unequal_shares(gated.sizes, share, UNEQUAL)
            table.add(self._measure(gated, wanted, but=table.points))
        return fit_times(gated.sizes, table.points, goal)

    def _measure(
        self, gated: Attached, wanted: Iterable[Kept], *, but: "Sequence[LatencyPoint]"
    ) -> "list[LatencyPoint]":
        """Cut the model to the sizes that are not measured yet, and time them."""
        from thinrnn._file_formats import LatencyPoint

        models: dict[str, nn.Module] = {}
        sizes: dict[str, Kept] = {}
        for kept in wanted:
            left, model = _cut(gated, kept)
            if not any(point.kept == left for point in but):
                models[str(left)], sizes[str(left)] = model, left
        if not models:
            return []
        found = self.time(models)
        if any(timing.is_noisy for timing in found.values()):
            warnings.warn(
                f"{TOO_NOISY}: measure again when the machine is idle, with another file.",
                stacklevel=5,  # the caller of Target
            )
        return [LatencyPoint(kept=sizes[n], milliseconds=t.median) for n, t in found.items()]

    def _call(self, model: nn.Module, path: Path) -> Call:
        model.eval()
        if self.runtime == "torch":
            args, kwargs = call_arguments(self.example)
            return lambda: model(*args, **kwargs)
        export_onnx(model, path, self.example, streaming=self.streaming)
        file = OnnxFile(path, threads=self.threads)
        given = Arguments(model, self.example)
        tensors = {
            n: t for n, t in zip(given.names, given.tensors, strict=True) if n in file.inputs
        }
        values = {name: tensor.numpy() for name, tensor in tensors.items()}
        rows = 1
        for name, tensor in tensors.items():
            shape = file.inputs[name].shape
            rows = tensor.shape[shape.index("batch")] if "batch" in shape else rows
        values |= file.first_states(rows)
        return lambda: file(values)

    def _about(self, gated: Attached) -> dict[str, str | int]:
        """Return what times depend on besides the sizes."""
        shapes = [(name, list(p.shape)) for name, p in gated.model.named_parameters()]
        groups = list(gated.sizes.groups.items())
        example = [(list(t.shape), str(t.dtype)) for t in tensors_in(call_arguments(self.example))]
        text = json.dumps([type(gated.model).__name__, shapes, groups, example])
        return {
            "model": hashlib.sha256(text.encode()).hexdigest(),
            "runtime": self.runtime,
            "version": version("onnxruntime" if self.runtime == "onnx" else "torch"),
            "streaming": int(self.streaming),
            "threads": self.threads,
            "processor": processor(),
        }

    def _file(self, gated: Attached) -> Path:
        if self.file is not None:
            return self.file
        about = json.dumps(self._about(gated), sort_keys=True)
        return cache_folder() / f"latency-{hashlib.sha256(about.encode()).hexdigest()[:16]}.json"


@dataclass
class _Table:
    """Measured times, in a file."""

    path: Path
    about: dict[str, str | int]

    def __post_init__(self) -> None:
        from thinrnn._file_formats import LatencyFile

        self.points: list[LatencyPoint] = []
        if self.path.exists():
            found = read_json(self.path, LatencyFile, TargetError)
            other = [key for key, value in self.about.items() if found.about.get(key) != value]
            if other:
                raise TargetError(
                    f"'{self.path}' has times of another {' and '.join(other)}: give another file."
                )
            self.points = list(found.points)

    def add(self, points: "Iterable[LatencyPoint]") -> None:
        from thinrnn._file_formats import LatencyFile

        self.points += points
        text = LatencyFile(
            thinrnn_latency=1, about=self.about, points=tuple(self.points)
        ).model_dump_json(indent=1)
        write_safely(self.path, lambda path: path.write_text(text))


def _shown(models: Iterable[T]) -> Iterable[T]:
    """Show on a terminal how many are exported."""
    from rich.progress import track

    items = list(models)
    hidden = not sys.stdout.isatty() or len(items) == 1
    return track(items, "exporting sizes to time", transient=True, disable=hidden)


def _cut(gated: Attached, kept: Kept) -> tuple[Kept, nn.Module]:
    """Return the model with this many neurons of each group, and the numbers that are left."""
    for name, gate in gated.gates.items():
        if gate.size < gate.full_size:
            raise TargetError(
                f"group '{name}' has lost neurons to shrink_: create the Target before, or give "
                "its Latency the file of the first time."
            )
    is_open = {n: torch.arange(gate.size) < kept[n] for n, gate in gated.gates.items()}
    keep, _ = neurons_to_keep(gated, is_open)
    ones = {name: torch.ones_like(gate.value) for name, gate in gated.gates.items()}
    small = small_copy(gated, keep, values=ones)
    return {name: len(index) for name, index in keep.items()}, small


def _kept(sizes: Sizes, shares: dict[str, float]) -> Kept:
    return {n: min(max(round(shares[n] * size), 1), size) for n, size in sizes.groups.items()}


def _equal_shares(sizes: Sizes) -> list[Kept]:
    """Return sizes at which all groups keep the same share: 1, 1/2, 1/4 ..."""
    return [_kept(sizes, dict.fromkeys(sizes.groups, 2.0**-half)) for half in range(EQUAL)]


def _unequal_shares(sizes: Sizes, share: float, count: int) -> list[Kept]:
    """Return sizes at which groups keep about the same share, more or less."""
    draw = torch.Generator().manual_seed(0)
    found = []
    for _ in range(count):
        factors = torch.exp(SPREAD * torch.randn(len(sizes.groups), generator=draw)).tolist()
        found.append(
            _kept(sizes, {n: share * f for n, f in zip(sizes.groups, factors, strict=True)})
        )
    return found


def _share_at(sizes: Sizes, times: tuple[Tensor, float], goal: float) -> float:
    """Return the share that all groups keep where a call takes the goal."""
    timed = sizes.with_latency(*times)
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        present = {n: torch.full((size,), middle).double() for n, size in sizes.groups.items()}
        is_quick = float(timed.total(present, "latency")) < goal
        low, high = (middle, high) if is_quick else (low, middle)
    return high


def _is_near(milliseconds: float, goal: float) -> bool:
    return abs(math.log(milliseconds / goal)) < REACH


def fit_times(sizes: Sizes, points: "Sequence[LatencyPoint]", goal: float) -> tuple[Tensor, float]:
    """Return milliseconds per element of each parameter, and per call, none of them negative.

    The sum of squares of the relative errors is least, times near the goal counting most. What the
    points leave open follows from "every mult-add takes as long".
    """
    elements = torch.stack([sizes.elements(_present(sizes, point.kept)) for point in points])
    times = torch.tensor([point.milliseconds for point in points], dtype=torch.float64)
    # relative errors, with less weight further away
    weight = torch.exp(-((times / goal).log() / REACH).square() / 2) + 1e-3
    unit = elements.mean(0).clamp(min=1)  # unknowns in comparable units: milliseconds at the mean
    ones = torch.ones(len(points), 1, dtype=torch.float64)
    rows = torch.cat([elements / unit, ones], 1) / times[:, None] * weight[:, None].sqrt()
    wanted = weight.sqrt()
    macs = elements @ sizes.weights["macs"]
    share = sizes.weights["macs"] * unit / macs.mean()
    simple = torch.stack([macs / macs.mean(), ones[:, 0]], 1) / times[:, None] * wanted[:, None]
    per_mac = non_negative_least_squares(simple, wanted)[0]
    prior = torch.cat([share * per_mac, torch.zeros(1).double()]) / goal
    lean = math.sqrt(PRIOR * float(weight.sum())) * torch.eye(len(unit) + 1).double()[:-1]
    rows = torch.cat([rows, lean / goal])
    wanted = torch.cat([wanted, lean @ prior])
    found = non_negative_least_squares(rows, wanted)
    return found[:-1] / unit, float(found[-1])


def _present(sizes: Sizes, kept: Kept) -> dict[str, Tensor]:
    return {name: (torch.arange(size) < kept[name]).double() for name, size in sizes.groups.items()}


def non_negative_least_squares(rows: Tensor, wanted: Tensor) -> Tensor:
    """Return x >= 0 with the least |rows x - wanted|, by coordinate descent."""
    gram, slope = rows.T @ rows, rows.T @ wanted
    x = torch.zeros_like(slope)
    for _ in range(SWEEPS):
        before = x.clone()
        for i in range(len(x)):
            if gram[i, i] > 0:
                x[i] = (x[i] + (slope[i] - gram[i] @ x) / gram[i, i]).clamp(min=0)
        if torch.allclose(x, before, rtol=1e-9, atol=1e-15):
            break
    return x
