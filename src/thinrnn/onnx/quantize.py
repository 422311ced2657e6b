"""quantize_onnx: an ONNX file with weights in 8 bits, and what became of each of them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from thinrnn.errors import ExportError, FolderError
from thinrnn.onnx._passes.int8 import QuantizedWeight, quantize_
from thinrnn.onnx.files import read_model, write_model
from thinrnn.onnx.runtime import OnnxFile, require_onnx

Measure = Callable[[Path], float]


@dataclass(frozen=True)
class Quantized:
    """A quantized file: its weights one by one, bytes and quality before and after."""

    path: Path
    weights: tuple[QuantizedWeight, ...]
    bytes_before: int
    bytes: int
    quality_before: float | None = None
    quality: float | None = None

    @property
    def loss(self) -> float | None:
        """By which fraction the quality got worse."""
        if self.quality is None or self.quality_before is None:
            return None
        return self.quality / self.quality_before - 1

    def __str__(self) -> str:
        rows = [("weight", "shape", "operator", "now", "why")]
        rows += [
            (w.name, "x".join(map(str, w.shape)), w.operator, w.now, w.why) for w in self.weights
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        ratio = self.bytes_before / self.bytes
        lines.append(f"{self.bytes_before:,} bytes -> {self.bytes:,}, {ratio:.2f} times smaller")
        if self.loss is not None:
            lines.append(
                f"quality {self.quality_before:.4f} -> {self.quality:.4f} ({self.loss:+.3%})"
            )
        return "\n".join(lines)


def quantize_onnx(
    path: str | Path,
    out: str | Path,
    *,
    per_row: bool = False,
    measure: Measure | None = None,
    max_loss: float | None = None,
) -> Quantized:
    """Write an ONNX file with weights in 8 bits, and return what was done to each of them.

    LSTM operators, matrix products and embeddings get 8-bit weights; the first two compute in 8
    bits, with inputs quantized as they come. ONNX Runtime has no such kernels for GRU and RNN:
    their weights are stored in 8 bits and brought back to float32 when the file is loaded.

    Arguments:
        path: a file written by `export_onnx`.
        out: the file to write; the two may be the same.
        per_row: give every row of a matrix a scale of its own, which is more exact and a little
            slower; otherwise a matrix has one scale.
        measure: returns how well a file does on your data, lower being better; it is called with
            the file before and after.
        max_loss: by which fraction the measure may get worse, 0.005 for half a percent; above it
            there is an error and no file.
    """
    require_onnx()
    if max_loss is not None and measure is None:
        raise ExportError("max_loss needs a measure: give a function that judges a file.")
    path, out = Path(path), Path(out)
    model = read_model(path)
    if "quantized" in model.metadata_props:
        raise FolderError(f"'{path}' is quantized already: give the float32 file.")
    weights = quantize_(model, per_row=per_row)
    model.metadata_props["quantized"] = "int8"
    before = None if measure is None else measure(path)
    after: float | None = None

    def check(file: Path) -> None:
        nonlocal after
        OnnxFile(file)  # raises if the runtime does not take it
        if measure is not None and before is not None:
            after = measure(file)
            _judge(before, after, max_loss)

    bytes_before = path.stat().st_size
    write_model(model, out, check)
    return Quantized(out, weights, bytes_before, out.stat().st_size, before, after)


def _judge(before: float, after: float, max_loss: float | None) -> None:
    if max_loss is not None and not after <= before * (1 + max_loss):
        raise ExportError(
            f"in 8 bits the measure goes from {before:.4f} to {after:.4f}, which is "
            f"{after / before - 1:.3%} worse and above {max_loss:.3%}: nothing was written."
        )
