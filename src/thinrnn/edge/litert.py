"""export_litert: write a model for LiteRT, formerly TensorFlow Lite."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from thinrnn._extras import require
from thinrnn.edge.export import EdgeExport, Precision, export
from thinrnn.errors import ExportError
from thinrnn.onnx._trace.graph import quiet
from thinrnn.onnx.runtime import Array


def export_litert(
    small: nn.Module,
    path: str | Path,
    example: Any,
    *,
    streaming: bool = False,
    precision: Precision = "float32",
) -> EdgeExport:
    """Write a model as a `.tflite` file for LiteRT, and check the file.

    All sizes are fixed. Recurrent layers are written out step by step, so a file for whole
    sequences grows with their length: prefer `streaming`, one step with the state as inputs and
    outputs. LiteRT then runs the file beside the model; the file is written only if the outputs
    agree.

    Args:
        small: A model without gates, such as `compact` returns. It is left as it is, and exported
            in eval mode and float32.
        path: The file to write.
        example: What the model is called with, as for `export_onnx`. Its batch, and without
            `streaming` its length, are those of the file.
        streaming: Write one step. The states come after the other inputs, and their next values
            after the other outputs.
        precision: "float32", or "int8": products with matrices compute in 8 bits, with a scale for
            each row, and quantize their inputs during the call.

    Returns:
        What was written: inputs, outputs, states, bytes, and the largest difference from PyTorch.
        In the file, inputs are called "args_0", "args_1", ..., outputs "output_0", ..., in the
        same order.

    Raises:
        ExportError: torch or LiteRT cannot convert the model, or the outputs differ by more than
            1e-4 (in 8 bits 0.1), relative to the largest output if that is above 1. No file is
            written.
        ExampleError: The model does not run on the example.
        GateError: The model still has gates.
        MissingExtraError: The extra "litert" is not installed.

    Examples:
        >>> from tempfile import mkdtemp
        >>> model, path, x = nn.GRU(4, 3), mkdtemp() + "/gru.tflite", torch.randn(5, 1, 4)
        >>> export = export_litert(model, path, x, streaming=True)  # doctest: +SKIP
        >>> export.outputs  # doctest: +SKIP
        {'output.0': (1, 1, 3), 'l0.h.next': (1, 1, 3)}
    """
    require("litert", "litert_torch", "ai_edge_litert", "ai_edge_quantizer")
    return export(
        small,
        path,
        example,
        runtime="LiteRT",
        streaming=streaming,
        precision=precision,
        convert=_convert,
        load=LitertFile,
    )


class LitertFile:
    """A `.tflite` file in LiteRT, called with the values of its inputs in their order."""

    def __init__(self, path: str | Path, *, threads: int = 1) -> None:
        from ai_edge_litert.interpreter import Interpreter

        content = Path(path).read_bytes()
        self.interpreter = Interpreter(model_content=content, num_threads=threads)
        self.interpreter.allocate_tensors()
        (names,) = self.interpreter.get_signature_list().values()
        self._run = self.interpreter.get_signature_runner()
        self._outputs = sorted(names["outputs"], key=_place)
        types = self._run.get_input_details()  # whole numbers have 32 bits in the file
        self._inputs = {name: types[name]["dtype"] for name in sorted(names["inputs"], key=_place)}

    def __call__(self, values: Sequence[Array]) -> list[Array]:
        given = zip(self._inputs.items(), values, strict=True)
        try:
            found = self._run(**{name: value.astype(type) for (name, type), value in given})
        except Exception as error:
            raise ExportError(f"LiteRT cannot run the file: {error}") from error
        return [numpy.array(found[name]) for name in self._outputs]


def _place(name: str) -> int:
    return int(name.rpartition("_")[2])


def _convert(
    model: nn.Module, inputs: tuple[Tensor, ...], path: Path, precision: Precision
) -> None:
    try:
        with quiet(), torch.no_grad():
            import litert_torch
            from ai_edge_quantizer import quantizer, recipe

            litert_torch.convert(model, inputs).export(str(path))
            if precision == "int8":
                rounding = quantizer.Quantizer(str(path), recipe.dynamic_wi8_afp32())
                rounding.quantize().export_model(str(path), overwrite=True)
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ExportError(f"LiteRT cannot convert the model: {reason}") from error
