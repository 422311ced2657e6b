"""Passes over ONNX graphs, all through onnx_ir; `finish` comes last."""
