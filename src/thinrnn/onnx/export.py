"""export_onnx: write a model as an ONNX file and compare the two."""

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from thinrnn import __version__
from thinrnn._gates.attach import is_attached
from thinrnn._model.copying import copy_module
from thinrnn.errors import ExportError, GateError
from thinrnn.onnx._trace.graph import Traced, trace
from thinrnn.onnx._trace.streaming import states_of
from thinrnn.onnx._trace.subject import Subject
from thinrnn.onnx.check import check_dimensions, compare, fixed_sizes, free_output_sizes_
from thinrnn.onnx.files import finished, write_model
from thinrnn.onnx.runtime import OnnxFile, require_onnx

TIME_OR_BATCH = re.compile("time|batch")
LARGEST_FILE = 2_000_000_000  # bytes; a protocol buffer ends there


@dataclass(frozen=True)
class Export:
    """What `export_onnx` wrote; `print` shows it.

    Attributes:
        path: The file.
        difference: The largest difference from PyTorch, relative to the largest output if that is
            above 1.
        bytes: The size of the file.
        inputs: The shape of each input, by name; free axes have names such as "time" and "batch".
        outputs: The shape of each output, by name.
        states: The inputs that are states. The next value of "NAME" is the output "NAME.next".
        checked: The sizes of the free axes at which the file was run beside the model. Each axis
            was checked at two sizes at least.
        fixed: The sizes of inputs that the file does not let you change, as in "x[2] = 40".

    Example:
        >>> from tempfile import mkdtemp
        >>> model, path = nn.LSTM(4, 3), mkdtemp() + "/lstm.onnx"
        >>> export = thinrnn.export_onnx(model, path, torch.randn(5, 2, 4), streaming=True)
        >>> export.states
        ('l0.h', 'l0.c')
        >>> export.difference < 1e-4
        True
    """

    path: Path
    difference: float
    bytes: int
    inputs: dict[str, tuple[int | str, ...]]
    outputs: dict[str, tuple[int | str, ...]]
    states: tuple[str, ...]
    checked: tuple[dict[str, int], ...]
    fixed: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.bytes:,} bytes"]
        for what, values in (("input", self.inputs), ("output", self.outputs)):
            lines += [f"{what:<7} {name} ({_listed(shape)})" for name, shape in values.items()]
        lines += [f"fixed   {_listed(self.fixed)}"] if self.fixed else []
        sizes = "; ".join(
            _listed(f"{name} {size}" for name, size in one.items()) for one in self.checked
        )
        lines.append(f"largest difference from PyTorch {self.difference:.2g} (at {sizes})")
        return "\n".join(lines)


def export_onnx(
    small: nn.Module,
    path: str | Path,
    example: Any,
    *,
    streaming: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> Export:
    """Write a model as an ONNX file that needs neither torch nor thinrnn, and check the file.

    Recurrent layers become ONNX's own LSTM, GRU and RNN operators, and an RHN a Scan. Batch and
    time stay free. ONNX Runtime then runs the file beside the model at several sizes; the file is
    written only if the outputs agree.

    Args:
        small: A model without gates, such as `compact` returns. It is left as it is, and exported
            in eval mode and float32.
        path: The file to write.
        example: What the model is called with: a tensor, a tuple of arguments, or a dictionary of
            keyword arguments. Leave the state out if the file is for streaming.
        streaming: Give the file the state of every recurrent layer as an input, such as
            "rnn.l0.h", and its next value as an output, "rnn.l0.h.next". A sequence can then be
            fed in chunks of any length.
        metadata: More entries for the file's metadata, by name.

    Returns:
        What was written: inputs, outputs, states, bytes, and the largest difference from PyTorch.

    Raises:
        ExportError: torch cannot trace the model, or the outputs differ by more than 1e-4,
            relative to the largest output if that is above 1, and by more than ten times what
            float32's rounding makes of the model itself. No file is written.
        ExampleError: The model does not run on the example.
        GateError: The model still has gates.
        MissingExtraError: The extra "onnx" is not installed, or torch is older than 2.8.

    Examples:
        >>> from tempfile import mkdtemp
        >>> export = export_onnx(nn.GRU(4, 3), mkdtemp() + "/gru.onnx", torch.randn(5, 2, 4))
        >>> export.inputs, export.outputs["output.0"]
        ({'input': ('time', 'batch', 4)}, ('time', 'batch', 3))
    """
    require_onnx()
    if is_attached(small):
        raise GateError(
            "this model has gates; export_onnx(compact(model), ...) writes the small one."
        )
    if sum(p.numel() for p in small.parameters()) * 4 > LARGEST_FILE:
        raise ExportError("the weights take more than 2 GB, which one ONNX file cannot hold.")
    model = copy_module(small).eval().cpu().float()
    subject = Subject(model, example)
    others = [axis.places for axis in subject.axes if not TIME_OR_BATCH.match(axis.name)]
    if subject.calls.cell_batches:  # a file of one length would hide that a loop is unrolled
        others = []
    path, metadata = Path(path), {**_described(subject, small), **(metadata or {})}
    try:
        return _exported(subject, path, metadata, streaming=streaming)
    except ExportError as error:
        # ONNX's tracer mistakes some sizes, such as a height that is averaged away
        every = [place for places in others for place in places]
        for fixed in [*others, every] if others else []:
            with contextlib.suppress(ExportError):
                smaller = Subject(model, example, fixed=fixed)
                return _exported(smaller, path, metadata, streaming=streaming)
        raise error


def _exported(
    subject: Subject, path: Path, metadata: Mapping[str, Any], *, streaming: bool
) -> Export:
    check_dimensions(subject)
    states = states_of(subject.calls, subject.axes) if streaming else {}
    kept = subject.outputs_without_states() if streaming else list(range(len(subject.outputs)))
    names = [name for place, name in enumerate(subject.output_names) if place in kept]

    rows = subject.batch
    given = [torch.zeros(1, rows, width) for width in states.values()]
    shapes = [
        {dim: axis.name for axis in subject.axes for tensor, dim in axis.places if tensor == which}
        for which in range(len(subject.inputs))
    ]
    free_batch = any(axis.name == "batch" for axis in subject.axes)
    shapes += [{1: "batch"} if free_batch else {} for _ in states]
    graph = trace(
        Traced(copy_module(subject.model), subject.arguments, len(states), kept),
        [*subject.inputs, *given],
        shapes,
        input_names=[*subject.arguments.names, *states],
        output_names=[*names, *(f"{name}.next" for name in states)],
        layers=subject.calls.layers,
    )
    free_output_sizes_(graph, subject, kept)
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in metadata.items()}
    graph.metadata_props.update(texts)
    return _write(graph, path, subject, kept, names)


def _described(subject: Subject, small: nn.Module) -> dict[str, Any]:
    tables = {n: m for n, m in small.named_modules() if isinstance(m, nn.Embedding)}
    sizes = {name: table.embedding_dim for name, table in tables.items()}
    sizes |= {layer.name: layer.hidden for layer in subject.calls.layers}
    return {
        "thinrnn": __version__,
        "model": type(small).__name__,
        "params": sum(p.numel() for p in small.parameters()),
        "sizes": sizes,
    }


def _write(graph: Any, path: Path, subject: Subject, kept: list[int], names: list[str]) -> Export:
    def check(written: Path) -> tuple[OnnxFile, float, list[dict[str, int]]]:
        file = OnnxFile(written)
        return file, *compare(file, subject, kept, names)

    file, difference, checked = write_model(finished(graph), path, check)
    return Export(
        path,
        difference,
        path.stat().st_size,
        {name: tuple(value.shape) for name, value in file.inputs.items()},
        {name: tuple(value.shape) for name, value in file.outputs.items()},
        tuple(file.states),
        tuple(checked),
        tuple(fixed_sizes(subject)),
    )


def _listed(items: Any) -> str:
    return ", ".join(map(str, items))
