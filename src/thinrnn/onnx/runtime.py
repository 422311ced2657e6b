"""ONNX files in ONNX Runtime."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from thinrnn._extras import require
from thinrnn._files import read_bytes
from thinrnn.errors import ExportError, MissingExtraError

Array = numpy.ndarray[Any, Any]
MOST_BYTES = 1 << 31  # of any protobuf message


def require_onnx() -> None:
    """Raise unless the extra `onnx` is installed and torch can export."""
    require("onnx", "onnx", "onnx_ir", "onnxruntime", "onnxscript")
    if not hasattr(torch.onnx, "ops"):
        raise MissingExtraError(
            f"ONNX export needs torch 2.8 or newer, and this is {torch.__version__}: upgrade torch."
        )


class OnnxFile:
    """An ONNX file in ONNX Runtime, called with the values of its inputs by name."""

    def __init__(self, path: str | Path, *, threads: int = 1) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what goes wrong is raised
        content = read_bytes(Path(path), most=MOST_BYTES)
        try:
            self._session = onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # they have no class of their own
            raise ExportError(f"ONNX Runtime does not take the file: {short(error)}") from error
        self.metadata: dict[str, str] = self._session.get_modelmeta().custom_metadata_map
        self.inputs = {value.name: value for value in self._session.get_inputs()}
        self.outputs = {value.name: value for value in self._session.get_outputs()}
        self.states = [name for name in self.inputs if f"{name}.next" in self.outputs]

    def first_states(self, batch: int) -> dict[str, Array]:
        """Return zeros for every state."""
        return {
            name: numpy.zeros((1, batch, self.inputs[name].shape[2]), numpy.float32)
            for name in self.states
        }

    def __call__(self, values: dict[str, Array]) -> dict[str, Array]:
        try:
            found = self._session.run(None, values)
        except Exception as error:
            raise ExportError(f"ONNX Runtime cannot run the file: {short(error)}") from error
        return dict(zip(self.outputs, found, strict=True))

    def stream(
        self, values: dict[str, Array], axes: dict[str, int], chunks: Sequence[int], batch: int
    ) -> dict[str, Array]:
        """Run the inputs in chunks, pass the states on, and return the joined outputs.

        `axes` says where the time is in each input that has one.
        """
        state, start = self.first_states(batch), 0
        found: dict[str, list[Array]] = {name: [] for name in self.outputs}
        for steps in chunks:
            part = {
                name: value.take(range(start, start + steps), axes[name]) if name in axes else value
                for name, value in values.items()
            }
            result = self({**part, **state})
            state = {name: result[f"{name}.next"] for name in self.states}
            start += steps
            for name, value in result.items():
                found[name].append(value)
        joined = {}
        for name, parts in found.items():
            shape = self.outputs[name].shape
            timed = "time" in shape and name not in {f"{s}.next" for s in self.states}
            joined[name] = numpy.concatenate(parts, shape.index("time")) if timed else parts[-1]
        return joined


def short(error: Exception) -> str:
    """Return the message of an error in one line."""
    return " ".join(str(error).split())[:300]


def difference(expected: Sequence[Tensor], found: Sequence[Array]) -> float:
    """Return the largest difference, relative to the largest output if that is above 1."""
    largest = 0.0
    for wanted, got in zip(expected, found, strict=True):
        one = torch.as_tensor(numpy.ascontiguousarray(got)).double()
        other = wanted.detach().double()
        if one.shape != other.shape:
            return float("inf")
        if not other.numel():
            continue
        scale = max(1.0, float(other.nan_to_num(posinf=0, neginf=0).abs().max()))
        apart = torch.where(one.eq(other) | (one.isnan() & other.isnan()), 0.0, one - other)
        largest = max(largest, float(apart.abs().nan_to_num(nan=torch.inf).max()) / scale)
    return largest
