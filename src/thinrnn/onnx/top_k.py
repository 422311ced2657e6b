"""top_k_onnx: an ONNX file that gives the best words of the last step instead of all logits.

    layers -> x (T, B, H) -> output layer -> logits (T, B, V)
becomes
    layers -> x (T, B, H) -> last step (1, B, H) -> output layer -> best k (1, B, k)
"""

from pathlib import Path
from typing import Any

import numpy

from thinrnn._files import write_safely
from thinrnn.errors import ExportError, FolderError
from thinrnn.onnx.runtime import require_onnx

PRODUCTS = ("MatMul", "Gemm", "DynamicQuantizeMatMul")
ADDITIONS = ("Add",)


def top_k_onnx(path: str | Path, out: str | Path, *, k: int = 10) -> Path:
    """Write an ONNX file that gives the `k` best words of the last step, and return its path.

    Outputs "best" (1, B, k) are the numbers of the words and "best.logits" their logits, largest
    first; states stay as they are. The output layer is computed for one step of each call and
    nothing of the size of the vocabulary leaves the runtime.

    Arguments:
        path: a file of `export_onnx`, or of `quantize_onnx`, of a model that ends in a linear
            layer, or in several side by side, and whose first output is its logits (T, B, V).
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
            f"the best words need an output (time, batch, words), but the first output is "
            f"({', '.join(map(str, shape))})."
        )
    if not 0 < k <= shape[2]:
        raise ExportError(f"k is {k}, but there are {shape[2]} words: choose 1 to {shape[2]}.")
    _all_steps_at_once(graph, logits)
    first = _output_layers(graph, logits)
    graph.initializer.extend(
        numpy_helper.from_array(numpy.array([number], numpy.int64), name)
        for name, number in (("best.last", -1), ("best.k", k))
    )
    last = helper.make_node("Gather", [first[0].input[0], "best.last"], ["best.hidden"], axis=0)
    graph.node.insert(min(list(graph.node).index(node) for node in first), last)
    for node in first:
        node.input[0] = "best.hidden"
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


def _all_steps_at_once(graph: Any, logits: str) -> None:
    """Take layers that are computed step by step, see by_step, out of their loop."""
    last = next(node for node in graph.node if logits in node.output)
    if last.op_type != "Scan" or len(last.output) > 1:  # with states it is a recurrent layer
        return
    body = next(attribute.g for attribute in last.attribute if attribute.name == "body")
    outside = dict(zip((one.name for one in body.input), last.input, strict=True))
    outside[body.output[0].name] = logits
    graph.node.remove(last)
    for node in body.node:
        node.input[:] = [outside.get(name, name) for name in node.input]
        node.output[:] = [outside.get(name, name) for name in node.output]
        graph.node.append(node)


def _output_layers(graph: Any, logits: str) -> list[Any]:
    """Return where the layers begin that make the logits: one, or several side by side.

    They read one value, some of them by way of another linear layer.
    """
    makers = {name: node for node in graph.node for name in node.output}
    last = makers[logits]
    side_by_side = last.op_type == "Concat" and last.attribute[0].i in (-1, 2)
    ways = [_ways(graph, end) for end in (last.input if side_by_side else [logits])]
    shared = [value for value in ways[0] if all(value in others for others in ways)]
    if not shared:
        raise ExportError(
            f"'{logits}' is not made by a linear layer but by {last.op_type}: there is no short "
            "way to its last step."
        )
    return [way[shared[0]] for way in ways]


def _ways(graph: Any, value: str) -> dict[str, Any]:
    """Return the values of which linear layers make a value, nearest first, and their nodes."""
    found = {}
    while (product := _product(graph, value)) is not None:
        first = _with_padding(graph, product)
        value = first.input[0]
        found[value] = first
    return found


def _product(graph: Any, value: str) -> Any:
    """Return the product that makes a value, of which the rest of the graph knows nothing."""
    makers = {name: node for node in graph.node for name in node.output}
    uses = [name for node in graph.node for name in node.input]
    uses += [output.name for output in graph.output]
    constants = {"", *(initializer.name for initializer in graph.initializer)}
    for one in graph.node:  # a tied weight is turned first
        if all(name in constants for name in one.input):
            constants.update(one.output)
    node = makers.get(value)
    while node is not None and uses.count(node.output[0]) == 1:
        if node.op_type in PRODUCTS and constants.issuperset(node.input[1:]):
            return node
        inputs = [name for name in node.input if name not in constants]
        node = makers.get(inputs[0]) if node.op_type in ADDITIONS and len(inputs) == 1 else None
    return None


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
