"""export_executorch: write a model for ExecuTorch, with XNNPACK's kernels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._extras import require
from thinrnn.edge.export import EdgeExport, Precision, export
from thinrnn.errors import ExportError
from thinrnn.onnx._trace.graph import quiet
from thinrnn.onnx.runtime import Array


def export_executorch(
    small: nn.Module,
    path: str | Path,
    example: Any,
    *,
    streaming: bool = False,
    precision: Precision = "float32",
) -> EdgeExport:
    """Write a model as a `.pte` file that ExecuTorch runs with XNNPACK, and check the file.

    All sizes are fixed. Recurrent layers are written out step by step, so a file for whole
    sequences grows with their length: prefer `streaming`, one step with the state as inputs and
    outputs. ExecuTorch then runs the file beside the model; the file is written only if the outputs
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

    Raises:
        ExportError: torch or ExecuTorch cannot convert the model, or the outputs differ by more
            than 1e-4 (in 8 bits 0.1), relative to the largest output if that is above 1. No file
            is written.
        ExampleError: The model does not run on the example.
        GateError: The model still has gates.
        MissingExtraError: The extra "executorch" is not installed.

    Examples:
        >>> from tempfile import mkdtemp
        >>> model, path, x = nn.GRU(4, 3), mkdtemp() + "/gru.pte", torch.randn(5, 1, 4)
        >>> export = export_executorch(model, path, x, streaming=True)  # doctest: +SKIP
        >>> export.inputs, export.states  # doctest: +SKIP
        ({'input': (1, 1, 4), 'l0.h': (1, 1, 3)}, ('l0.h',))
    """
    require("executorch", "executorch")
    return export(
        small,
        path,
        example,
        runtime="ExecuTorch",
        streaming=streaming,
        precision=precision,
        convert=_convert,
        load=ExecutorchFile,
    )


class ExecutorchFile:
    """A `.pte` file in ExecuTorch, called with the values of its inputs in their order."""

    def __init__(self, path: str | Path) -> None:
        from executorch.runtime import Runtime

        # the bytes, since the program may outlive the file
        self._program = Runtime.get().load_program(Path(path).read_bytes())
        self.method = self._program.load_method("forward")

    def __call__(self, values: Sequence[Array]) -> list[Array]:
        try:
            found = self.method.execute([torch.from_numpy(value) for value in values])
        except Exception as error:
            raise ExportError(f"ExecuTorch cannot run the file: {error}") from error
        return [tensor.clone().numpy() for tensor in found]


def _convert(
    model: nn.Module, inputs: tuple[Tensor, ...], path: Path, precision: Precision
) -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    try:
        with quiet(), torch.no_grad():
            program = torch.export.export(model, inputs)
            if precision == "int8":
                program = torch.export.export(_in_8_bits(program.module(), inputs), inputs)
            edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
            content = edge.to_executorch().buffer
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ExportError(f"ExecuTorch cannot convert the model: {reason}") from error
    path.write_bytes(content)


def _in_8_bits(model: Any, inputs: tuple[Tensor, ...]) -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    prepared = prepare_pt2e(model, XNNPACKQuantizer().set_global(config))
    prepared(*inputs)
    return convert_pt2e(prepared)
