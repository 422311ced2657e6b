"""Compare a file with its model at several sizes, on whole sequences and in chunks."""

from typing import Any

from torch import Tensor

from thinrnn.errors import ExportError
from thinrnn.onnx._trace.axes import DynamicAxis, nudged, resized, varied
from thinrnn.onnx._trace.subject import Subject
from thinrnn.onnx.runtime import Array, OnnxFile, difference

LARGEST_DIFFERENCE = 1e-4
# Where a recurrent network magnifies rounding: times the model's own difference from float64.
TIMES_ROUNDING, MOST_ROUNDING = 10, 0.1
IN_CHUNKS = (
    " when it runs in chunks: something besides the recurrent layers looks across time, so the "
    "model cannot be streamed"
)


def compare(
    file: OnnxFile, subject: Subject, kept: list[int], names: list[str]
) -> tuple[float, list[dict[str, int]]]:
    """Return the largest difference of the outputs, and the sizes at which they were compared."""
    largest, checked = 0.0, []
    for seed, sizes in enumerate(sizes_to_check(subject.axes)):
        tensors = varied(resized(subject.arguments.tensors, sizes), seed)
        if subject.shapes_at(tensors) is None:
            continue
        outputs = subject.run(tensors)
        wanted = [outputs[place] for place in kept]
        values = _values(file, subject, tensors)
        at = {axis.name: size for axis, size in sizes.items()}
        batch = at.get("batch", 1)
        runs = [(wanted, file({**values, **file.first_states(batch)}), _why_whole(subject))]
        if file.states:
            chunks = split_into_chunks(at["time"])
            streamed = file.stream(values, subject.time_axes, chunks, batch)
            runs.append((wanted, streamed, IN_CHUNKS))
        if subject.feeds:
            runs.append(_fed_back(file, subject, tensors, kept, names))
        for wanted, found, why in runs:
            apart = difference(wanted, [found[name] for name in names])
            if not apart <= LARGEST_DIFFERENCE and not apart <= _rounding(subject, tensors):
                listed = ", ".join(f"{name} {size}" for name, size in at.items()) or "the example"
                raise ExportError(
                    f"at {listed} the file differs from the model by {apart:.3g}{why}; nothing was "
                    "written."
                )
            largest = max(largest, apart)
        checked.append(at)
    for axis in subject.axes:
        if all(at[axis.name] == axis.size for at in checked):
            raise ExportError(
                f"the size of {axis.name} could be checked at {axis.size} alone, that of the "
                "example: give an example with another one, in which all inputs agree."
            )
    return largest, checked


def _rounding(subject: Subject, tensors: list[Tensor]) -> float:
    """Return the difference that rounding explains.

    It is some times the model's own: from float64, and where inputs change by their last digit.
    """
    try:
        others = [subject.run_in_float64(tensors)]
    except Exception:  # the model makes tensors of another type, which float64 does not meet
        return 0.0
    others += [subject.run(nudged(tensors, seed)) for seed in range(3)]
    usual = [output.numpy() for output in subject.run(tensors)]
    return min(TIMES_ROUNDING * max(difference(one, usual) for one in others), MOST_ROUNDING)


def fixed_sizes(subject: Subject) -> list[str]:
    """Name the sizes of inputs that no caller of the file may change, as in "x[2] = 40"."""
    free = {place for axis in subject.axes for place in axis.places}
    return [
        f"{name}[{dim}] = {size}"
        for which, name in enumerate(subject.arguments.names)
        for dim, size in enumerate(subject.arguments.tensors[which].shape)
        if (which, dim) not in free
    ]


def check_dimensions(subject: Subject) -> None:
    """Raise if an output has other dimensions at other sizes, which no ONNX file can follow."""
    for sizes in sizes_to_check(subject.axes):
        tensors = resized(subject.arguments.tensors, sizes)
        if subject.shapes_at(tensors) is None:
            continue
        runs = zip(subject.output_names, subject.outputs, subject.run(tensors), strict=False)
        for name, usual, output in runs:
            if output.dim() != usual.dim():
                at = ", ".join(f"{axis.name} {size}" for axis, size in sizes.items())
                raise ExportError(
                    f"'{name}' has {usual.dim()} dimensions, and at {at} {output.dim()}: "
                    "squeeze() drops every axis of size 1; write squeeze(dim) in the model."
                )


def free_output_sizes_(graph: Any, subject: Subject, kept: list[int]) -> None:
    """Leave the sizes of outputs open that follow those of inputs, whatever the tracer says."""
    tensors = [resized(subject.arguments.tensors, sizes) for sizes in sizes_to_check(subject.axes)]
    seen = [subject.run(one) for one in tensors if subject.shapes_at(one) is not None]
    for output, place in zip(graph.graph.outputs, kept, strict=False):  # states come after
        for dim, size in enumerate(output.shape or ()):
            if isinstance(size, int) and any(run[place].shape[dim] != size for run in seen):
                output.shape[dim] = None


def _values(file: OnnxFile, subject: Subject, tensors: list[Tensor]) -> dict[str, Array]:
    """Return the values of the file's inputs; the file has none that the model does not use."""
    named = zip(subject.arguments.names, tensors, strict=True)
    return {name: tensor.numpy() for name, tensor in named if name in file.inputs}


def _fed_back(
    file: OnnxFile, subject: Subject, tensors: list[Tensor], kept: list[int], names: list[str]
) -> tuple[list[Tensor], dict[str, Array], str]:
    """Return what the model and the file compute when their states are fed back."""
    first = subject.run(tensors)
    found = file(_values(file, subject, tensors))
    again, values = list(tensors), _values(file, subject, tensors)
    for here, there in subject.feeds.items():
        again[here] = first[there]
        values[subject.arguments.names[here]] = found[names[kept.index(there)]]
    outputs = subject.run(again)
    why = " when the states that it returned are given back"
    return [outputs[place] for place in kept], file(values), why


def _why_whole(subject: Subject) -> str:
    why = ": "
    if any(layer.packed for layer in subject.calls.layers):
        why += "the longest sequence of the example has to fill the time axis; if it does, "
    return f"{why}the model's Python code depends on sizes or values"


def sizes_to_check(axes: list[DynamicAxis]) -> list[dict[DynamicAxis, int]]:
    """Return sizes for the axes: the example's, 1 and others, in several combinations."""
    rounds: list[dict[DynamicAxis, int]] = []
    for turn in range(5):
        sizes = {}
        for place, axis in enumerate(axes):
            choices = [axis.size, 1, 3 * axis.size, 2 * axis.size + 1, axis.size + 2]
            sizes[axis] = choices[turn * (place + 1) % 5]
        rounds.append(sizes)
    rounds.append({axis: 1 for axis in axes})
    for axis in axes:  # alone, in case it runs only beside the sizes of the example
        rounds.append({**{other: other.size for other in axes}, axis: 2 * axis.size})
    return [sizes for place, sizes in enumerate(rounds) if sizes not in rounds[:place]]


def split_into_chunks(steps: int) -> list[int]:
    """Return lengths of chunks, 1, 2, 3 and so on, that make up a sequence."""
    chunks: list[int] = []
    while steps:
        chunks.append(min(len(chunks) + 1, steps))
        steps -= chunks[-1]
    return chunks
