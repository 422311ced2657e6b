"""What changes an ONNX graph once it is there."""
