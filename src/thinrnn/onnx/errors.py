"""What can go wrong on the way from a model to a file."""

from thinrnn.errors import ThinRNNError


class ExportError(ThinRNNError, ValueError):
    """The model cannot be written as ONNX, or the file does not do what the model does."""


class MissingExtraError(ThinRNNError, ImportError):
    """Packages are missing that are installed with an extra."""


def require_onnx() -> None:
    """Raise unless the packages of the extra `onnx` are here, and a torch that can export."""
    import importlib.util

    import torch

    missing = [
        name
        for name in ("onnx", "onnxruntime", "onnxscript")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise MissingExtraError(
            f"ONNX needs {' and '.join(missing)}: install it with pip install 'thinrnn[onnx]'."
        )
    if not hasattr(torch.onnx, "ops"):
        raise MissingExtraError(
            f"ONNX export needs torch 2.8 or newer, and this is {torch.__version__}: upgrade torch."
        )
