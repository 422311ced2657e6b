"""quantize_onnx: an ONNX file with 8-bit weights, and a report of each weight."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from thinrnn._table import table
from thinrnn.errors import ExportError, FolderError
from thinrnn.onnx._passes.int8 import QuantizedWeight as QuantizedWeight
from thinrnn.onnx._passes.int8 import quantize_
from thinrnn.onnx.files import finished, read_model, understood, write_model
from thinrnn.onnx.runtime import OnnxFile, require_onnx

Measure = Callable[[Path], float]


@dataclass(frozen=True)
class Quantized:
    """What `quantize_onnx` wrote; `print` shows it as a table.

    Attributes:
        path: The file.
        weights: Every weight, with its operator, its shape and how it is stored now.
        bytes_before: The size of the float32 file.
        bytes: The size of the 8-bit file.
        quality_before: What `measure` returned for the float32 file, if one was given.
        quality: What `measure` returned for the 8-bit file.

    Example:
        >>> from tempfile import mkdtemp
        >>> folder = mkdtemp()
        >>> export = thinrnn.export_onnx(nn.LSTM(24, 20), f"{folder}/a.onnx", torch.randn(5, 2, 24))
        >>> quantized = thinrnn.quantize_onnx(export.path, f"{folder}/a.int8.onnx")
        >>> quantized.bytes < quantized.bytes_before
        True
    """

    path: Path
    weights: tuple[QuantizedWeight, ...]
    bytes_before: int
    bytes: int
    quality_before: float | None = None
    quality: float | None = None

    @property
    def loss(self) -> float | None:
        """How much worse the quality got, as a fraction; None without a measure."""
        if self.quality is None or self.quality_before is None:
            return None
        return self.quality / self.quality_before - 1

    def __str__(self) -> str:
        rows = [("weight", "shape", "operator", "now", "why")]
        rows += [
            (w.name, "x".join(map(str, w.shape)), w.operator, w.now, w.why) for w in self.weights
        ]
        lines = [table(rows)]
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
    """Write an ONNX file with 8-bit weights, and report what became of each weight.

    LSTM operators and matrix products compute in 8 bits; their inputs are quantized during the
    call. Embeddings are looked up in 8 bits. ONNX Runtime has no 8-bit kernel for GRU and RNN:
    a GRU of 256 neurons or more becomes a loop of 8-bit products, which is faster; the weights of
    others are stored in 8 bits and converted to float32 when the file is loaded.

    Args:
        path: A file from `export_onnx` or `top_k_onnx`.
        out: The file to write. It may be the same as `path`.
        per_row: Give every row of a matrix its own scale, which is more exact and a little slower.
            Otherwise a matrix has one scale.
        measure: A function that takes the path of a file and returns its quality on your data,
            lower is better. It is called for the file before and after.
        max_loss: How much worse the measure may get, as a fraction: 0.005 is half a percent.

    Returns:
        What was written: every weight, the bytes, and the quality before and after.

    Raises:
        ExportError: The measure gets worse by more than `max_loss`, or `max_loss` is given without
            a `measure`. No file is written.
        FolderError: The file cannot be read, is not an ONNX file, or is quantized already.
        MissingExtraError: The extra "onnx" is not installed.

    Examples:
        >>> from tempfile import mkdtemp
        >>> folder = mkdtemp()
        >>> model = torch.nn.LSTM(24, 20)
        >>> exported = export_onnx(model, folder + "/lstm.onnx", torch.randn(5, 2, 24))
        >>> quantized = quantize_onnx(exported.path, folder + "/lstm.int8.onnx")
        >>> [(weight.name, weight.now) for weight in quantized.weights]
        [('l0.W', 'int8'), ('l0.R', 'int8'), ('l0.B', 'float32')]
    """
    require_onnx()
    if max_loss is not None and measure is None:
        raise ExportError("max_loss needs a measure: give a function that judges a file.")
    path, out = Path(path), Path(out)
    with understood(path):
        model = read_model(path)
        if "quantized" in model.metadata_props:
            raise FolderError(f"'{path}' is quantized already: give the float32 file.")
        weights = quantize_(model, per_row=per_row)
        model.metadata_props["quantized"] = "int8"
        content = finished(model)
    before = None if measure is None else measure(path)

    def check(file: Path) -> float | None:
        OnnxFile(file)  # raises if the runtime does not take it
        after = None if measure is None else measure(file)
        if before is not None and after is not None:
            _judge(before, after, max_loss)
        return after

    bytes_before = path.stat().st_size
    after = write_model(content, out, check)
    return Quantized(out, weights, bytes_before, out.stat().st_size, before, after)


def _judge(before: float, after: float, max_loss: float | None) -> None:
    if max_loss is not None and not after <= before * (1 + max_loss):
        raise ExportError(
            f"in 8 bits the measure goes from {before:.4f} to {after:.4f}, which is "
            f"{after / before - 1:.3%} worse and above {max_loss:.3%}: nothing was written."
        )
