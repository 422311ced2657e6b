"""Graphs read from ONNX files, and written to them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from thinrnn._files import write_safely
from thinrnn.errors import ExportError, FolderError
from thinrnn.onnx._passes.finish import finish_


def read_model(path: Path) -> Any:
    """Return the onnx_ir.Model of a file."""
    import onnx_ir

    try:
        return onnx_ir.load(path, format="protobuf")
    except OSError as error:
        raise FolderError(f"cannot read '{path}': {error.strerror}.") from None
    except Exception:
        raise FolderError(f"'{path}' is not an ONNX file.") from None


def write_model(model: Any, path: Path, check: Callable[[Path], object]) -> None:
    """Finish a graph and write it; if `check` raises for the new file, none is written."""
    import onnx_ir

    finish_(model)

    def write(temporary: Path) -> None:
        onnx_ir.save(model, temporary, format="protobuf")
        check(temporary)

    try:
        write_safely(path, write)
    except OSError as error:
        raise ExportError(f"cannot write '{path}': {error.strerror or error}.") from error
