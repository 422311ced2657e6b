"""From a small model to a file that runs without torch."""

from thinrnn.export.best_onnx import best_onnx
from thinrnn.export.export_onnx import Export, export_onnx
from thinrnn.export.quantize_onnx import Quantized, quantize_onnx

__all__ = ["Export", "Quantized", "best_onnx", "export_onnx", "quantize_onnx"]
