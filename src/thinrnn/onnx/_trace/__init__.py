"""Tracing: from a call of a model to a plain ONNX graph."""
