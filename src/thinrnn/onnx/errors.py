"""What can go wrong on the way from a model to a file."""

from thinrnn._extras import require
from thinrnn.errors import MissingExtraError, ThinRNNError


class ExportError(ThinRNNError, ValueError):
    """The model cannot be written as ONNX, or the file does not do what the model does."""


def require_onnx() -> None:
    """Raise unless the packages of the extra `onnx` are here, and a torch that can export."""
    import torch

    require("onnx", "onnx", "onnx_ir", "onnxruntime", "onnxscript")
    if not hasattr(torch.onnx, "ops"):
        raise MissingExtraError(
            f"ONNX export needs torch 2.8 or newer, and this is {torch.__version__}: upgrade torch."
        )
