"""Graphs read from ONNX files, finished, and written to them."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from thinrnn._files import read_bytes, write_safely
from thinrnn.errors import ExportError, FolderError, ThinRNNError
from thinrnn.onnx._passes.biases import fold_biases_
from thinrnn.onnx._passes.by_step import by_step_
from thinrnn.onnx.runtime import MOST_BYTES, OnnxFile, short

R = TypeVar("R")


def read_model(path: Path) -> Any:
    """Return the onnx_ir.Model of a file, which ONNX Runtime has checked.

    Raises:
        FolderError: The file cannot be read, is not a valid ONNX file, or is not in one piece.
    """
    import onnx
    import onnx_ir

    try:
        proto = onnx.load_model_from_string(read_bytes(path, most=MOST_BYTES))
    except ThinRNNError:
        raise
    except Exception:  # protobuf's has a class of its own
        raise FolderError(f"'{path}' is not an ONNX file.") from None
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise FolderError(f"'{path}' keeps {tensor.name!a} in another file: put all into one.")
    open_model(path)
    return onnx_ir.from_proto(proto)


def open_model(path: Path) -> OnnxFile:
    """Return a file that somebody gave, in ONNX Runtime.

    Raises:
        FolderError: The file cannot be read, or cannot run.
    """
    try:
        file = OnnxFile(path)
    except ExportError as error:
        raise FolderError(f"'{path}' is not an ONNX file that can run: {error}") from None
    if not file.outputs:
        raise FolderError(f"'{path}' is not an ONNX file that can run: it has no outputs.")
    return file


@contextlib.contextmanager
def understood(path: Path) -> Iterator[None]:
    """Say in one line that a valid graph is none that `export_onnx` writes.

    The passes rely on its operators, names and shapes. Anything may fail for another graph.
    """
    try:
        yield
    except (ThinRNNError, OSError, MemoryError):
        raise
    except Exception as error:
        raise FolderError(
            f"'{path}' is not a file of export_onnx: {type(error).__name__}: {short(error)}"
        ) from error


def finished(model: Any) -> bytes:
    """Return a graph as the content of a file, after the last passes."""
    import onnx_ir

    finish_(model)
    content: bytes = onnx_ir.to_proto(model).SerializeToString()
    return content


def finish_(model: Any) -> None:
    """Make a graph fast and clean: wide layers rewritten, unused parts removed, names unique.

    This is the last pass before a file is written. Running it again changes nothing.
    """
    from onnx_ir.passes import common

    fold_biases_(model.graph)
    by_step_(model.graph)
    for one in (common.RemoveUnusedNodesPass, common.RemoveUnusedOpsetsPass, common.NameFixPass):
        one()(model)


def write_model(content: bytes, path: Path, check: Callable[[Path], R]) -> R:
    """Write an ONNX file and return what `check` does; if it raises, no file is written."""

    def write(temporary: Path) -> R:
        temporary.write_bytes(content)
        return check(temporary)

    return write_export(path, write)


def write_export(path: Path, write: Callable[[Path], R]) -> R:
    """Let `write` make a file and check it; it is put in place if nothing is raised."""
    try:
        return write_safely(path, write)
    except OSError as error:
        raise ExportError(f"cannot write '{path}': {error.strerror or error}.") from error
