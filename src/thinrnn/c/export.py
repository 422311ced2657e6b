"""export_c: write a model as one C file, compile it, and compare the two."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy
import torch
from torch import Tensor, nn

from thinrnn import __version__
from thinrnn._gates.attach import is_attached
from thinrnn._model.copying import copy_module
from thinrnn._model.tree import tensors_in
from thinrnn.c.compiled import Functions, compile_shared, compiler, pointer
from thinrnn.c.program import Program
from thinrnn.c.record import identifier, recording
from thinrnn.c.write import flash, in_8_bits, write
from thinrnn.errors import ExportError, GateError
from thinrnn.onnx._trace.axes import DynamicAxis, resized, varied
from thinrnn.onnx._trace.streaming import states_of
from thinrnn.onnx._trace.subject import Subject
from thinrnn.onnx.check import LARGEST_DIFFERENCE
from thinrnn.onnx.files import write_export
from thinrnn.onnx.runtime import difference

Precision = Literal["float32", "int8"]
MOST_WEIGHTS = 20_000_000  # compilers take minutes and gigabytes for more
LENGTHS = (1, 2, 9)  # besides the example's


@dataclass(frozen=True)
class CExport:
    """What `export_c` wrote; `print` shows it.

    Attributes:
        path: The file.
        name: What its functions begin with: NAME_reset and NAME_step.
        difference: The largest difference from PyTorch with the same weights, relative to the
            largest output if that is above 1.
        rounding: The same for PyTorch with the float32 weights; equal unless these are in 8 bits.
        flash: The bytes of all weights. The code itself takes a few thousand more.
        ram: The bytes of the state and of the stack that a step uses.
        inputs: How many floats, or whole numbers, a step reads, by name, in the order of the call.
        outputs: How many floats it writes.
        states: How many floats of the state each state takes, in their order.
        checked: The lengths of the sequences on which the two were compared.

    Example:
        >>> from tempfile import mkdtemp
        >>> export = thinrnn.export_c(nn.GRU(4, 3), mkdtemp() + "/gru.c", torch.randn(5, 2, 4))
        >>> export.name, export.difference < 1e-4
        ('gru', True)
    """

    path: Path
    name: str
    difference: float
    rounding: float
    flash: int
    ram: int
    inputs: dict[str, int]
    outputs: dict[str, int]
    states: dict[str, int]
    checked: tuple[int, ...]

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.flash:,} bytes of flash, {self.ram:,} bytes of RAM"]
        for what in ("inputs", "outputs", "states"):
            lines += [f"{what[:-1]:<7} {n} ({size})" for n, size in getattr(self, what).items()]
        steps = ", ".join(map(str, self.checked))
        lines.append(f"largest difference from PyTorch {self.difference:.2g} (after {steps} steps)")
        if self.rounding != self.difference:
            lines.append(f"and from the weights before they were rounded {self.rounding:.2g}")
        return "\n".join(lines)


def export_c(
    small: nn.Module, path: str | Path, example: Any, *, precision: Precision = "float32"
) -> CExport:
    """Write a model as one file of C99 that runs one step at a time, and check the file.

    The file needs no library and allocates no memory. It has two functions: NAME_reset sets the
    state to zeros, and NAME_step reads the inputs of one step, changes the state and writes the
    outputs. NAME is the name of the file. The C compiler of this machine compiles it, and it runs
    beside the model; the file is kept only if the outputs agree.

    Args:
        small: A model without gates, such as `compact` returns: nn.LSTM, nn.GRU, nn.RNN, RNNStack
            and RHN in one direction, the cells of torch, nn.Embedding, nn.Linear, activations,
            layer norm and batch norm, sums, products and slices. It is left as it is.
        path: The file to write.
        example: What the model is called with, as for `export_onnx`, with a time axis, and without
            a state.
        precision: "float32", or "int8": matrices are stored in 8 bits with a scale for each row,
            and computed with in float32.

    Returns:
        What was written: inputs, outputs, states, the bytes of flash and RAM, and the largest
        difference from PyTorch.

    Raises:
        ExportError: The model does something else, or the outputs differ by more than 1e-4,
            relative to the largest output if that is above 1. No file is written.
        ExampleError: The model does not run on the example.
        GateError: The model still has gates.
        MissingExtraError: There is no C compiler to check the file with.

    Examples:
        >>> from tempfile import mkdtemp
        >>> export = export_c(nn.GRU(4, 3), mkdtemp() + "/gru.c", torch.randn(5, 2, 4))
        >>> export.inputs, export.outputs, export.states, export.flash
        ({'input': 4}, {'output_0': 3}, {'l0.h': 3}, 324)
    """
    compiler()
    if is_attached(small):
        raise GateError("this model has gates; export_c(compact(model), ...) writes the small one.")
    if precision not in ("float32", "int8"):
        raise ExportError(f'export_c: precision is {precision!r}; give "float32" or "int8".')
    if sum(p.numel() for p in small.parameters()) > MOST_WEIGHTS:
        raise ExportError(
            f"export_c: the model has more than {MOST_WEIGHTS:,} weights, too many for the text of "
            "a C file; use export_onnx."
        )
    path = Path(path)
    subject = Subject(copy_module(small).eval().cpu().float(), example)
    states = states_of(subject.calls, subject.axes) if subject.calls.layers else {}
    kept = subject.outputs_without_states() if states else list(range(len(subject.outputs)))
    int8 = precision == "int8"
    lengths = _lengths(subject)
    before = {steps: _outputs(subject, steps, kept) for steps in lengths}
    program = _recorded(subject, list(states), kept)
    if int8:
        _round_(subject.model, program)
        program = _recorded(subject, list(states), kept)

    name = identifier(path.stem).lower() or "model"
    if name[0].isdigit():
        name = f"model_{name}"
    about = f"{type(small).__name__}, written by thinrnn {__version__}, {precision}."
    text = write(program, name, about, int8=int8)

    def check(file: Path) -> tuple[float, float]:
        file.write_text(text)
        with tempfile.TemporaryDirectory(prefix="thinrnn-c-") as folder:
            library = Path(folder) / "step.so"
            compile_shared(file, library, "-O1")
            runs = [(steps, _run(library, name, program, subject, steps)) for steps in lengths]
        wanted = {steps: _outputs(subject, steps, kept) for steps in lengths}
        apart, rounding = (
            max(_apart(expected[steps], found, steps) for steps, found in runs)
            for expected in (wanted, before)
        )
        if not apart <= LARGEST_DIFFERENCE:
            raise ExportError(
                f"the C file differs from the model by {apart:.3g}: something besides the "
                "recurrent layers looks across time, or the model's Python code depends on sizes "
                "or values; nothing was written."
            )
        return apart, rounding

    apart, rounding = write_export(path, check)
    buffers = (program.inputs, program.outputs, program.states)
    inputs, outputs, held = ({one.name: one.size for one in part} for part in buffers)
    return CExport(
        path=path,
        name=name,
        difference=apart,
        rounding=rounding,
        flash=flash(program, int8=int8),
        ram=4 * (sum(held.values()) + program.placed()[1]),
        inputs=inputs,
        outputs=outputs,
        states=held,
        checked=tuple(lengths),
    )


def _lengths(subject: Subject) -> list[int]:
    """Return the lengths of sequences to compare; only 1 for a model of one step."""
    time = next((axis for axis in subject.axes if axis.name == "time"), None)
    return [1] if time is None else sorted({*LENGTHS, time.size})


def _tensors(subject: Subject, steps: int) -> list[Tensor]:
    """Return one sequence of inputs, of this many steps."""
    sizes: dict[DynamicAxis, int] = {}
    for axis in subject.axes:
        if axis.name in ("time", "batch"):
            sizes[axis] = steps if axis.name == "time" else 1
    tensors = varied(resized(subject.arguments.tensors, sizes), seed=steps)
    if subject.shapes_at(tensors) is None:
        raise ExportError(f"export_c: the model does not run on one sequence of {steps} steps.")
    return tensors


def _outputs(subject: Subject, steps: int, kept: list[int]) -> list[Tensor]:
    outputs = subject.run(_tensors(subject, steps))
    return [outputs[place] for place in kept]


def _recorded(subject: Subject, states: list[str], kept: list[int]) -> Program:
    """Return the program of one step."""
    tensors = _tensors(subject, 1)
    names = [identifier(name) for name in subject.arguments.names]
    outputs = [identifier(subject.output_names[place]) for place in kept]

    with recording(subject.model, states) as recorder:
        for name, tensor in zip(names, tensors, strict=True):
            recorder.input(name, tensor)
        found = list(tensors_in(subject.arguments.call(subject.model, tensors)))
        for name, place in zip(outputs, kept, strict=True):
            recorder.output(name, found[place])
    return recorder.program.without_copies()


def _round_(model: nn.Module, program: Program) -> None:
    """Set the parameters that are matrices to what 8 bits can hold."""
    own = {p.data_ptr(): name for name, p in model.named_parameters()}
    for matrix in program.matrices.values():
        if matrix.values.data_ptr() not in own:
            raise ExportError(
                f"export_c: the matrix '{matrix.name}' is computed from other weights, and cannot "
                'be stored in 8 bits: use precision="float32".'
            )
        values, scale = in_8_bits(matrix.rows)
        matrix.rows.copy_(values * scale[:, None])


def _run(
    library: Path, name: str, program: Program, subject: Subject, steps: int
) -> list[list[Tensor]]:
    """Return the outputs of each step."""
    axes, given = subject.time_axes, []
    for at, tensor in zip(subject.arguments.names, _tensors(subject, steps), strict=True):
        rows = tensor.movedim(axes[at], 0) if at in axes else tensor.expand(steps, *tensor.shape)
        kind = numpy.float32 if tensor.is_floating_point() else numpy.int32
        given.append(rows.reshape(steps, -1).numpy().astype(kind))
    functions = Functions(library, name)
    state = numpy.zeros(max(1, sum(one.size for one in program.states)), numpy.float32)
    functions.reset(pointer(state))
    found = []
    for now in range(steps):
        outputs = [numpy.zeros(one.size, numpy.float32) for one in program.outputs]
        arrays = [state, *(rows[now] for rows in given), *outputs]
        functions.step(*map(pointer, arrays))
        found.append([torch.from_numpy(one) for one in outputs])
    return found


def _apart(wanted: list[Tensor], found: list[list[Tensor]], steps: int) -> float:
    """Return the largest difference: of all steps where an output has a time axis, else the last"""
    largest = 0.0
    for place, tensor in enumerate(wanted):
        size = found[0][place].numel()
        rows = [one[place] for one in found]
        if tensor.numel() == size:
            rows, expected = rows[-1:], tensor.reshape(1, size)
        else:
            axis = next((d for d, n in enumerate(tensor.shape) if n == steps), None)
            if axis is None or tensor.numel() != steps * size:
                return float("inf")
            expected = tensor.movedim(axis, 0).reshape(steps, size)
        largest = max(largest, difference([expected], [torch.stack(rows).numpy()]))
    return largest
