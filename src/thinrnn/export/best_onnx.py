"""best_onnx: an ONNX file that gives the best words of the last step instead of all logits.

    layers -> x (T, B, H) -> output layer -> logits (T, B, V)
becomes
    layers -> x (T, B, H) -> last step (1, B, H) -> output layer -> best k (1, B, k)
"""

from pathlib import Path
from typing import Any

import numpy

from thinrnn.errors import FolderError
from thinrnn.export.errors import ExportError, require_onnx
from thinrnn.files import write_safely

PRODUCTS = ("MatMul", "Gemm", "DynamicQuantizeMatMul")
ADDITIONS = ("Add",)


def best_onnx(path: str | Path, out: str | Path, *, k: int = 10) -> Path:
    """Write an ONNX file that gives the `k` best words of the last step, and return its path.

    Outputs "best" (1, B, k) are the numbers of the words and "best.logits" their logits, largest
    first; states stay as they are. The output layer is computed for one step of each call and
    nothing of the size of the vocabulary leaves the runtime.

    Arguments:
        path: a file of `export_onnx`, or of `quantize_onnx`, of a model that ends in a linear layer
            and whose first output is its logits (T, B, V).
        out: the file to write.
        k: how many words.
    """
    require_onnx()
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = _read(Path(path))
    graph = model.graph
    logits = graph.output[0].name
    shape = [
        axis.dim_param or axis.dim_value for axis in graph.output[0].type.tensor_type.shape.dim
    ]
    if len(shape) != 3 or shape[0] != "time":
        raise ExportError(
            f"'{path}' begins its outputs with {shape}, not with (time, batch, words)."
        )
    if not 0 < k <= shape[2]:
        raise ExportError(f"k is {k}, but there are {shape[2]} words: choose 1 to {shape[2]}.")
    first = _with_padding(graph, _output_layer(graph, logits))
    graph.initializer.extend(
        numpy_helper.from_array(numpy.array([number], numpy.int64), name)
        for name, number in (("best.last", -1), ("best.k", k))
    )
    last = helper.make_node("Gather", [first.input[0], "best.last"], ["best.hidden"], axis=0)
    graph.node.insert(list(graph.node).index(first), last)
    first.input[0] = "best.hidden"
    graph.node.append(
        helper.make_node("TopK", [logits, "best.k"], ["best.logits", "best"], axis=-1)
    )
    states = list(graph.output)[1:]
    del graph.output[:], graph.value_info[:]
    for name, kind in (("best", TensorProto.INT64), ("best.logits", TensorProto.FLOAT)):
        graph.output.append(helper.make_tensor_value_info(name, kind, [1, shape[1], k]))
    graph.output.extend(states)

    def write(temporary: Path) -> None:
        onnx.checker.check_model(model)
        temporary.write_bytes(model.SerializeToString())

    try:
        write_safely(Path(out), write)
    except OSError as error:
        raise ExportError(f"cannot write '{out}': {error.strerror or error}.") from error
    return Path(out)


def _output_layer(graph: Any, logits: str) -> Any:
    """Return the product that makes the logits, of which the rest of the graph knows nothing."""
    makers = {name: node for node in graph.node for name in node.output}
    readers = [name for node in graph.node for name in node.input]
    node = makers[logits]
    while node.op_type in ADDITIONS:
        inputs = [name for name in node.input if name in makers]
        if len(inputs) != 1 or inputs[0] in (value.name for value in graph.output):
            break
        node = makers[inputs[0]]
    constants = {"", *(initializer.name for initializer in graph.initializer)}
    for one in graph.node:  # a tied weight is turned first
        if all(name in constants for name in one.input):
            constants.update(one.output)
    is_linear = node.op_type in PRODUCTS and constants.issuperset(node.input[1:])
    if not is_linear or any(readers.count(name) > 1 for name in node.output):
        raise ExportError(
            f"'{logits}' is not made by a linear layer but by {node.op_type}: there is no short "
            "way to its last step."
        )
    return node


def _with_padding(graph: Any, product: Any) -> Any:
    """Return where an output layer begins: its bias may be a row of its weights, see biases."""
    for node in graph.node:
        if node.op_type == "Pad" and list(node.output) == list(product.input[:1]):
            return node
    return product


def _read(path: Path) -> Any:
    import onnx

    try:
        return onnx.ModelProto.FromString(path.read_bytes())
    except OSError as error:
        raise FolderError(f"cannot read '{path}': {error.strerror}.") from None
    except Exception:
        raise FolderError(f"'{path}' is not an ONNX file.") from None
