"""The k largest logits of the last step instead of all logits.

    layers -> x (T, B, H) -> output layer -> logits (T, B, V)
becomes
    layers -> x (T, B, H) -> last step (1, B, H) -> output layer -> largest k (1, B, k)
"""

from typing import Any

import numpy

from thinrnn.errors import ExportError
from thinrnn.onnx._passes.by_step import body_of
from thinrnn.onnx._passes.edit import constant, replace

# Operators that compute every step from the same step of what they read.
STEP_BY_STEP = ("MatMul", "DynamicQuantizeMatMul", "Add", "Pad")


def keep_top_k_(graph: Any, k: int) -> None:
    """Make the k largest logits of the last step outputs of an onnx_ir graph."""
    import onnx_ir

    logits = graph.outputs[0]
    shape = list(logits.shape or ())
    if len(shape) != 3 or str(shape[0]) != "time":
        raise ExportError(
            f"the best words need an output (time, batch, words), but the first output is "
            f"({', '.join(map(str, shape))})."
        )
    if not 0 < k <= shape[2]:
        raise ExportError(f"k is {k}, but there are {shape[2]} words: choose 1 to {shape[2]}.")
    logits = _without_loop(logits)
    hidden, first = _output_layers(logits)
    last = onnx_ir.node("Gather", [hidden, constant(graph, "best.last", numpy.array([-1]))])
    graph.append(last)
    for node in first:
        node.replace_input_with(list(node.inputs).index(hidden), last.outputs[0])
    inputs = [logits, constant(graph, "best.k", numpy.array([k]))]
    top = onnx_ir.node("TopK", inputs, {"axis": -1}, num_outputs=2)
    graph.append(top)
    found = list(reversed(top.outputs))
    for value, name, kind in zip(found, ("best", "best.logits"), ("INT64", "FLOAT"), strict=True):
        value.name, value.dtype = name, onnx_ir.DataType[kind]
        value.shape = onnx_ir.Shape([1, shape[1], k])
    graph.outputs[:1] = found
    graph.sort()


def _without_loop(logits: Any) -> Any:
    """Return logits whose last step needs no loop: that of `by_step_` keeps no state."""
    import onnx_ir

    loop = logits.producer()
    if loop.op_type != "Scan" or len(loop.outputs) > 1:  # with states it is a recurrent layer
        return logits
    body = body_of(loop)
    nodes, inputs, outputs = list(body), list(body.inputs), list(body.outputs)
    onnx_ir.convenience.replace_all_uses_with(inputs, loop.inputs)
    body.outputs.clear()
    body.remove(nodes)
    replace([loop], nodes)
    return outputs[0]


def _output_layers(logits: Any) -> tuple[Any, list[Any]]:
    """Return what the layers read that make the logits, one or several side by side, and where.

    Some of them may read it by way of another linear layer.
    """
    last = logits.producer()
    side_by_side = last.op_type == "Concat" and last.attributes["axis"].value in (-1, 2)
    ways = [_way(end) for end in (last.inputs if side_by_side else [logits])]
    shared = [value for value in ways[0] if all(value in others for others in ways)]
    if not shared:
        raise ExportError(
            f"'{logits.name}' is not made by a linear layer but by {last.op_type}, so its last "
            "step cannot be computed without the others."
        )
    for way in ways:
        for node in way.values():
            node.outputs[0].shape = None  # one step from now on
    logits.shape = None
    return shared[-1], [way[shared[-1]] for way in ways]


def _way(value: Any) -> dict[Any, Any]:
    """Return the values that a value is computed from, step by step, and their readers."""
    found = {}
    while len(value.uses()) + value.is_graph_output() == 1:
        node = value.producer()
        if node is None or node.op_type not in STEP_BY_STEP:
            break
        changing = [one for one in node.inputs if one is not None and not _is_constant(one)]
        if len(changing) != 1 or not _is_step_by_step(node, changing[0]):
            break
        value = changing[0]
        found[value] = node
    return found


def _is_step_by_step(node: Any, value: Any) -> bool:
    if node.op_type == "Pad":
        axes = node.inputs[3].const_value if len(node.inputs) > 3 else None
        return axes is not None and axes.numpy().tolist() == [-1]
    return node.op_type == "Add" or node.inputs[0] is value


def _is_constant(value: Any) -> bool:
    """Say whether a value is a weight, or made of weights alone as a transposed one is."""
    node = value.producer()
    if node is None:
        return bool(value.is_initializer())
    return all(one is None or _is_constant(one) for one in node.inputs)
