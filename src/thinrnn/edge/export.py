"""What the two exports share: a model with fixed sizes, written by a converter and compared.

model ──trace──> torch.export program ──converter──> file ──runtime──> same outputs?
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy
import torch
from torch import Tensor, nn

from thinrnn._gates.attach import is_attached
from thinrnn._model.copying import copy_module
from thinrnn._model.tree import tensors_in
from thinrnn.edge.steps import Steps
from thinrnn.errors import ExportError, GateError
from thinrnn.nn.rhn import RHN
from thinrnn.onnx._trace.axes import resized, varied
from thinrnn.onnx._trace.streaming import states_of
from thinrnn.onnx._trace.subject import Subject
from thinrnn.onnx.check import LARGEST_DIFFERENCE
from thinrnn.onnx.files import write_export
from thinrnn.onnx.runtime import Array, difference

Precision = Literal["float32", "int8"]
LARGEST_ROUNDING = 0.1  # of 8-bit files: above it something is wrong besides rounding
STEPS = 9  # on which a file for streaming is compared


class File(Protocol):
    """A file in its runtime: values in, values out, both in the order of the file."""

    def __call__(self, values: Sequence[Array]) -> list[Array]: ...


# Writes a module of fixed inputs to a path, in this precision.
Convert = Callable[[nn.Module, tuple[Tensor, ...], Path, Precision], object]


@dataclass(frozen=True)
class EdgeExport:
    """What `export_executorch` or `export_litert` wrote; `print` shows it.

    Attributes:
        path: The file.
        runtime: "ExecuTorch" or "LiteRT".
        precision: "float32" or "int8".
        difference: The largest difference from PyTorch, relative to the largest output if that is
            above 1.
        bytes: The size of the file.
        inputs: The shape of each input by name, in the order of the file, states last.
        outputs: The shape of each output, in the order of the file; the next states are last.
        states: The inputs that are states. The next value of "NAME" is the output "NAME.next".

    Example:
        >>> from pathlib import Path
        >>> shapes = {"x": (1, 1, 4), "l0.h": (1, 1, 3)}
        >>> next_ = {"output.0": (1, 1, 3), "l0.h.next": (1, 1, 3)}
        >>> export = thinrnn.EdgeExport(
        ...     Path("gru.pte"), "ExecuTorch", "float32", 1e-7, 1980, shapes, next_, ("l0.h",)
        ... )
        >>> print(export)
        gru.pte: 1,980 bytes, float32, for ExecuTorch
        input   x (1, 1, 4)
        input   l0.h (1, 1, 3)
        output  output.0 (1, 1, 3)
        output  l0.h.next (1, 1, 3)
        largest difference from PyTorch 1e-07
    """

    path: Path
    runtime: str
    precision: Precision
    difference: float
    bytes: int
    inputs: dict[str, tuple[int, ...]]
    outputs: dict[str, tuple[int, ...]]
    states: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.bytes:,} bytes, {self.precision}, for {self.runtime}"]
        for what, values in (("input", self.inputs), ("output", self.outputs)):
            lines += [f"{what:<7} {name} {shape}" for name, shape in values.items()]
        lines.append(f"largest difference from PyTorch {self.difference:.2g}")
        return "\n".join(lines)


class EdgeModel(nn.Module):
    """The model as torch.export sees it: tensors in, tensors out, states last in both."""

    def __init__(self, subject: Subject, states: int, outputs: Sequence[int]) -> None:
        super().__init__()
        self.model = copy_module(subject.model)
        self._arguments = subject.arguments
        self._states = states
        self._outputs = list(outputs)
        for module in self.model.modules():
            if isinstance(module, nn.RNNBase):  # a stack then calls its cells as modules
                module.register_forward_pre_hook(lambda *_: None)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(tensors) - self._states
        steps = Steps(tensors[count:] if self._states else None)
        for module in self.model.modules():
            if isinstance(module, RHN):
                module.forward = functools.partial(steps.run_rhn, module)  # type: ignore[method-assign]
        with steps:
            result = self._arguments.call(self.model, tensors[:count])
        found = list(tensors_in(result))
        return (*(found[place] for place in self._outputs), *steps.last)


def export(
    small: nn.Module,
    path: str | Path,
    example: Any,
    *,
    runtime: str,
    streaming: bool,
    precision: Precision,
    convert: Convert,
    load: Callable[[Path], File],
) -> EdgeExport:
    """Write a model by a converter, and compare the file with the model."""
    function = f"export_{runtime.lower()}"
    if is_attached(small):
        raise GateError(f"this model has gates; {function}(compact(model), ...) writes the small.")
    if precision not in ("float32", "int8"):
        raise ExportError(f'{function}: precision is {precision!r}; give "float32" or "int8".')
    path = Path(path)
    subject = Subject(copy_module(small).eval().cpu().float(), example)
    states = states_of(subject.calls, subject.axes) if streaming else {}
    kept = subject.outputs_without_states() if streaming else list(range(len(subject.outputs)))
    inputs = _inputs(subject, 1 if streaming else None, seed=0)
    batch = next((a.size for a in subject.axes if a.name == "batch"), 1)
    zeros = [torch.zeros(1, batch, width) for width in states.values()]
    traced = EdgeModel(subject, len(states), kept).eval()

    def write(temporary: Path) -> float:
        convert(traced, (*inputs, *zeros), temporary, precision)
        return _compare(load(temporary), subject, kept, zeros, function, precision)

    largest = write_export(path, write)
    with torch.no_grad():
        outputs = traced(*inputs, *zeros)
    names = [subject.output_names[place] for place in kept] + [f"{name}.next" for name in states]
    given = [*subject.arguments.names, *states]
    return EdgeExport(
        path=path,
        runtime=runtime,
        precision=precision,
        difference=largest,
        bytes=path.stat().st_size,
        inputs=_shapes(given, [*inputs, *zeros]),
        outputs=_shapes(names, outputs),
        states=tuple(states),
    )


def _shapes(names: Sequence[str], tensors: Sequence[Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in zip(names, tensors, strict=True)}


def _inputs(subject: Subject, steps: int | None, seed: int) -> list[Tensor]:
    """Return inputs of the example's sizes, or with another number of steps."""
    sizes = {axis: steps for axis in subject.axes if axis.name == "time"} if steps else {}
    return varied(resized(subject.arguments.tensors, sizes), seed=seed)


def _compare(
    file: File,
    subject: Subject,
    kept: list[int],
    zeros: list[Tensor],
    function: str,
    precision: Precision,
) -> float:
    """Return the largest difference of a file from its model."""
    largest = 0.0
    for seed in (1, 2):
        tensors = _inputs(subject, STEPS if zeros else None, seed)
        outputs = subject.run(tensors)
        wanted = [outputs[place] for place in kept]
        found = (
            _streamed(file, subject, tensors, zeros, wanted) if zeros else file(_arrays(tensors))
        )
        largest = max(largest, difference(wanted, found))
    most = LARGEST_DIFFERENCE if precision == "float32" else LARGEST_ROUNDING
    if not largest <= most:
        why = (
            ": something besides the recurrent layers looks across time, or the model's Python "
            "code depends on sizes or values"
        )
        raise ExportError(
            f"{function}: the file differs from the model by {largest:.3g}{why}; nothing was "
            "written."
        )
    return largest


def _streamed(
    file: File,
    subject: Subject,
    tensors: Sequence[Tensor],
    zeros: Sequence[Tensor],
    wanted: Sequence[Tensor],
) -> list[Array]:
    """Return the outputs of single steps, the states passed on: joined, or those of the last."""
    states = _arrays(zeros)
    axes, names = subject.time_axes, subject.arguments.names
    rows: list[list[Array]] = []
    for now in range(STEPS):
        step = [
            t.narrow(axes[name], now, 1) if name in axes else t
            for name, t in zip(names, tensors, strict=True)
        ]
        found = file([*_arrays(step), *states])
        states = found[len(wanted) :]
        rows.append(found[: len(wanted)])
    by_output = zip(*rows, strict=True)
    return [_joined(parts, whole) for parts, whole in zip(by_output, wanted, strict=True)]


def _joined(parts: Sequence[Array], whole: Tensor) -> Array:
    shapes = zip(parts[-1].shape, whole.shape, strict=False)
    axis = next((d for d, (one, all_) in enumerate(shapes) if one != all_), None)
    return parts[-1] if axis is None else numpy.concatenate(parts, axis)


def _arrays(tensors: Sequence[Tensor]) -> list[Array]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]
