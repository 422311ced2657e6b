"""The bias of a wide layer as one more row of its weights, and back.

    x -> MatMul(W) -> Add(b)        becomes        x -> Pad with 1 -> MatMul([W; b])

A runtime adds a bias in a pass of its own over all outputs; in a small language model that takes a
fifteenth of the time of a batch (`benchmarks/small_cuts.py`).
"""

from typing import Any

import numpy

from thinrnn.onnx._passes.editor import constant, replace_chain_

JOINED = " + "  # between the names of a weight and a bias
WIDE = 4  # outputs per input; narrower layers pad as much as they add


def fold_biases_(graph: Any) -> None:
    """Make the biases of wide layers part of their weights in an onnx_ir graph."""
    import onnx_ir

    for node in list(graph):
        weight = node.inputs[1] if node.op_type == "MatMul" else None
        if weight is None or not _is_wide(weight):
            continue
        add, bias = bias_of(node, weight.shape[1])
        if bias is None or len(bias.uses()) > 1:
            continue
        rows = numpy.concatenate([weight.const_value.numpy(), bias.const_value.numpy()[None]])
        whole = constant(graph, f"{weight.name}{JOINED}{bias.name}", rows)
        with_one = [
            node.inputs[0],
            constant(graph, "bias.pads", numpy.array([0, 1])),
            constant(graph, "bias.one", numpy.ones((), numpy.float32)),
            constant(graph, "bias.axes", numpy.array([-1])),
        ]
        pad = onnx_ir.node("Pad", with_one, {"mode": "constant"}, name=f"{node.name}.pad")
        pad.outputs[0].name = f"{node.name}.padded"
        product = onnx_ir.node("MatMul", [pad.outputs[0], whole], name=node.name)
        replace_chain_(graph, [pad, product], instead_of=[node, add])


def unfold_biases_(graph: Any) -> None:
    """Take biases out of the weights again, as they were before `fold_biases_`."""
    import onnx_ir

    for node in list(graph):
        if node.op_type != "MatMul":
            continue
        pad, weight = node.inputs[0].producer(), node.inputs[1]
        names = weight.name.split(JOINED)
        if len(names) != 2 or pad is None or pad.op_type != "Pad":
            continue
        rows = weight.const_value.numpy()
        inputs = [pad.inputs[0], constant(graph, names[0], rows[:-1])]
        product = onnx_ir.node("MatMul", inputs, name=node.name)
        product.outputs[0].name = f"{node.name}.product"
        inputs = [product.outputs[0], constant(graph, names[1], rows[-1])]
        add = onnx_ir.node("Add", inputs, name=f"{node.name}.add")
        replace_chain_(graph, [product, add], instead_of=[pad, node])


def bias_of(node: Any, size: int) -> tuple[Any, Any]:
    """Return the Add behind a product and the bias that it adds; the product and None if none."""
    uses = list(node.outputs[0].uses())
    if len(uses) == 1 and uses[0].node.op_type == "Add" and not node.outputs[0].is_graph_output():
        add = uses[0].node
        bias = add.inputs[1 - uses[0].idx]
        if bias is not None and bias.is_initializer() and tuple(bias.shape) == (size,):
            return add, bias
    return node, None


def _is_wide(weight: Any) -> bool:
    """Whether a weight (inputs, outputs) has many outputs, and no other reader."""
    if not weight.is_initializer() or weight.dtype.name != "FLOAT" or len(weight.shape) != 2:
        return False
    inputs, outputs = weight.shape
    return bool(outputs >= WIDE * inputs and len(weight.uses()) == 1)
