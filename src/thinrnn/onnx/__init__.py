"""From a small model to a file that runs without torch."""

from thinrnn.onnx.best_onnx import best_onnx
from thinrnn.onnx.export_onnx import Export, export_onnx
from thinrnn.onnx.quantize_onnx import Quantized, quantize_onnx

__all__ = ["Export", "Quantized", "best_onnx", "export_onnx", "quantize_onnx"]
