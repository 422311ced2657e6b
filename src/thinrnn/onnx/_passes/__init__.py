"""Passes over ONNX graphs, all through onnx_ir; `onnx.files.finish_` comes last."""
