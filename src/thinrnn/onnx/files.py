"""Graphs read from ONNX files, and written to them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from thinrnn._files import open_regular, write_safely
from thinrnn.errors import ExportError, FolderError
from thinrnn.onnx._passes.finish import finish_

MOST_BYTES = 1 << 31  # of any protobuf message


def read_model(path: Path) -> Any:
    """Return the onnx_ir.Model of a file."""
    import onnx_ir

    open_regular(path).close()
    if path.stat().st_size > MOST_BYTES:
        raise FolderError(f"'{path}' is larger than 2 GiB, the limit of an ONNX file.")
    try:
        model = onnx_ir.load(path, format="protobuf")
    except OSError as error:
        raise FolderError(f"cannot read '{path}': {error.strerror}.") from None
    except Exception:
        raise FolderError(f"'{path}' is not an ONNX file.") from None
    for name, value in model.graph.initializers.items():
        if isinstance(value.const_value, onnx_ir.ExternalTensor):
            raise FolderError(f"'{path}' keeps {name!a} in another file: put all into one.")
    return model


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
