"""Our 8-bit files beside those of ONNX Runtime's own dynamic quantizer, layer by layer.

    python -m benchmarks.quantizers

    ours, ours per row       `quantize_onnx`, one scale for each matrix, or for each of its rows
    runtime, runtime per row `quant_pre_process` and `quantize_dynamic` of onnxruntime, signed
                             weights, one scale for each matrix, or for each of its rows

For every kind of layer and every way: the bytes of the file, the operators in it, how many of the
weights are stored in 8 bits, and the largest difference of the outputs from the float32 file,
relative to the largest output. `conclusion` says why `quantize_onnx` does not call that quantizer.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy
import onnx
import torch
from onnx import TensorProto
from torch import Tensor, nn

from benchmarks.record import parser, write_record
from thinrnn import export_onnx, quantize_onnx
from thinrnn.nn.rhn import RHN
from thinrnn.onnx._passes import biases
from thinrnn.onnx.files import read_model
from thinrnn.onnx.runtime import OnnxFile

EIGHT_BITS = (TensorProto.INT8, TensorProto.UINT8)
WHY = (
    "quantize_onnx keeps its own rules because quantize_dynamic leaves GRU, RNN and the loop of an "
    "RHN in float32, stores a tied matrix twice, writes a file that does not run for a tied layer "
    "that reads one step, and does not report which weights it left."
)


class Words(nn.Module):
    """Tokens in, logits out: an embedding, a recurrent layer, a linear layer."""

    def __init__(self, rnn: nn.Module, words: int, size: int, **options: bool) -> None:
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(words, size), rnn
        self.head = nn.Linear(size, words)
        self.last = options.get("last", False)
        if options.get("tied"):
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.rnn(self.embedding(tokens))[0]
        return self.head(h[-1] if self.last else h)  # (T, B, V), or (B, V) by one Gemm


def models(words: int, size: int) -> dict[str, nn.Module]:
    """Return one model for each kind of layer that is quantized differently."""
    return {
        "LSTM": Words(nn.LSTM(size, size), words, size),
        "GRU": Words(nn.GRU(size, size), words, size),
        "RNN": Words(nn.RNN(size, size), words, size),
        "RHN": Words(RHN(size, size, depth=3), words, size),
        "LSTM with projection": Words(nn.LSTM(size, 2 * size, proj_size=size), words, size),
        "tied": Words(nn.LSTM(size, size), words, size, tied=True),
        "last step": Words(nn.LSTM(size, size), words, size, last=True),
        "last step, tied": Words(nn.LSTM(size, size), words, size, last=True, tied=True),
    }


def by_runtime(path: Path, out: Path, *, per_row: bool) -> None:
    """Quantize a file as onnxruntime's documentation advises."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = out.with_suffix(".prepared.onnx")
    quant_pre_process(str(path), str(prepared))
    quantize_dynamic(prepared, out, per_channel=per_row, weight_type=QuantType.QInt8)


def described(path: Path, float32: Path, tokens: Any) -> dict[str, Any]:
    """Return what a file holds and how far its outputs are from those of the float32 file."""
    graph = onnx.load(path).graph
    operators = Counter(node.op_type for node in read_model(path).graph.all_nodes())
    weights = {one.name: int(numpy.prod(one.dims)) for one in graph.initializer}
    eight = sum(weights[one.name] for one in graph.initializer if one.data_type in EIGHT_BITS)
    (wanted,), (found,) = (OnnxFile(one)({"tokens": tokens}).values() for one in (float32, path))
    return {
        "bytes": path.stat().st_size,
        "weights_in_8_bits": round(eight / sum(weights.values()), 4),
        "largest_difference": float(numpy.abs(found - wanted).max() / numpy.abs(wanted).max()),
        "operators": dict(sorted(operators.items())),
    }


def compare(model: nn.Module, folder: Path, words: int) -> dict[str, Any]:
    """Return one model in float32 and in 8 bits by all ways; an error is noted as its message."""
    tokens = torch.zeros(3, 2, dtype=torch.long)
    path = export_onnx(model.eval(), folder / "float32.onnx", tokens).path
    with patch.object(biases, "WIDE", sys.maxsize):  # its shape inference fails at our Pad
        plain = export_onnx(model, folder / "plain.onnx", tokens).path
    values = numpy.random.default_rng(0).integers(0, words, (20, 4))
    found: dict[str, Any] = {"float32": described(path, path, values)}
    for name, source, quantize in (("ours", path, quantize_onnx), ("runtime", plain, by_runtime)):
        for per_row in (False, True):
            key = f"{name} per row" if per_row else name
            out = folder / f"{key.replace(' ', '_')}.onnx"
            try:
                quantize(source, out, per_row=per_row)
                found[key] = described(out, path, values)
            except Exception as error:
                found[key] = {"error": " ".join(str(error).split())[:200]}
    return found


def main() -> None:
    arguments = parser(__doc__, "quantizers-cpu.json")
    arguments.add_argument("--words", type=int, default=2000)
    arguments.add_argument("--size", type=int, default=128)
    options = arguments.parse_args()
    found = {}
    for kind, model in models(options.words, options.size).items():
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            found[kind] = compare(model, Path(folder), options.words)
        for way, one in found[kind].items():
            print(f"{kind:<22}{way:<18}{one}")
    write_record("8-bit files by two quantizers", options, conclusion=WHY, models=found)


if __name__ == "__main__":
    main()
