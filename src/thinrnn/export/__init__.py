"""From a small model to a file that runs without torch."""

from thinrnn.export.export_onnx import Export, export_onnx

__all__ = ["Export", "export_onnx"]
