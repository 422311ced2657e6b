"""From a small model to a file that runs without torch."""

from thinrnn.onnx.export import Export, export_onnx
from thinrnn.onnx.quantize import Quantized, QuantizedWeight, quantize_onnx
from thinrnn.onnx.top_k import top_k_onnx

__all__ = ["Export", "Quantized", "QuantizedWeight", "export_onnx", "quantize_onnx", "top_k_onnx"]
