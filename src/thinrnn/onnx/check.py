"""Compare a file with its model at several sizes, on whole sequences and in chunks."""

from thinrnn.errors import ExportError
from thinrnn.onnx._trace.axes import Axis, resized, varied
from thinrnn.onnx._trace.subject import Subject
from thinrnn.onnx.runtime import OnnxFile, difference

LARGEST_DIFFERENCE = 1e-4
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
        values = {
            name: tensor.numpy()
            for name, tensor in zip(subject.arguments.names, tensors, strict=True)
            if name in file.inputs  # the file has no input that the model does not use
        }
        at = {axis.name: size for axis, size in sizes.items()}
        batch = at.get("batch", 1)
        runs = [(file({**values, **file.first_states(batch)}), _why_whole(subject))]
        if file.states:
            chunks = split_into_chunks(at["time"])
            runs.append((file.stream(values, subject.time_axes, chunks, batch), IN_CHUNKS))
        for found, why in runs:
            apart = difference(wanted, [found[name] for name in names])
            if not apart <= LARGEST_DIFFERENCE:
                listed = ", ".join(f"{name} {size}" for name, size in at.items()) or "the example"
                raise ExportError(
                    f"at {listed} the file differs from the model by {apart:.3g}{why}; nothing was "
                    "written."
                )
            largest = max(largest, apart)
        checked.append(at)
    return largest, checked


def _why_whole(subject: Subject) -> str:
    why = ": "
    if any(layer.packed for layer in subject.calls.layers):
        why += "the longest sequence of the example has to fill the time axis; if it does, "
    return f"{why}the model's Python code depends on sizes or values"


def sizes_to_check(axes: list[Axis]) -> list[dict[Axis, int]]:
    """Return sizes for the axes: the example's, 1 and others, in several combinations."""
    rounds: list[dict[Axis, int]] = []
    for turn in range(5):
        sizes = {}
        for place, axis in enumerate(axes):
            choices = [axis.size, 1, 3 * axis.size, 2 * axis.size + 1, axis.size + 2]
            sizes[axis] = choices[turn * (place + 1) % 5]
        rounds.append(sizes)
    rounds.append({axis: 1 for axis in axes})
    return [sizes for place, sizes in enumerate(rounds) if sizes not in rounds[:place]]


def split_into_chunks(steps: int) -> list[int]:
    """Return lengths of chunks, 1, 2, 3 and so on, that make up a sequence."""
    chunks: list[int] = []
    while steps:
        chunks.append(min(len(chunks) + 1, steps))
        steps -= chunks[-1]
    return chunks
