"""A GRU in 8 bits, for which ONNX Runtime has no kernel: a Scan whose body has 8-bit products.

x (T, B, I) -> W x + b, all steps at once -> Scan over the steps: U h + b, gates, h
"""

from typing import Any

import numpy

# Neurons from which a step is faster than the float32 kernel; below, the calls of the operators
# in the loop cost more than the product saves (`benchmarks/gru_int8.py`).
WIDE = 256
PRODUCT, MICROSOFT = "DynamicQuantizeMatMul", "com.microsoft"


def is_wide_gru(node: Any) -> bool:
    """Say whether a GRU reads forward, all of its steps, with enough neurons."""
    weights = [node.inputs[place] for place in (1, 2)]
    if any(value is None or not value.is_initializer() for value in weights):
        return False
    attributes = {name: one.value for name, one in node.attributes.items()}
    lengths = node.inputs[4] if len(node.inputs) > 4 else None
    return (
        attributes["hidden_size"] >= WIDE
        and attributes.get("direction", "forward") == "forward"
        and attributes.get("linear_before_reset") == 1
        and lengths is None
    )


def gru_in_8_bits(weights: Any, node: Any) -> None:
    """Replace a GRU; `weights` is the `GraphWeights` of the graph."""
    import onnx_ir

    from_x, from_h = (_product(weights, node, place) for place in (1, 2))
    tape = onnx_ir.tape.Tape()
    x = node.inputs[0]
    sums = tape.op(PRODUCT, [x, *from_x], domain=MICROSOFT)  # (T, B, 3H)
    hidden = node.attributes["hidden_size"].value
    body = _one_step(from_h, hidden)
    squeezed = weights.add("first_axis", numpy.array([0]))
    given = node.inputs[5] if len(node.inputs) > 5 else None
    if given is None:
        batch = tape.op("Shape", [x], {"start": 1, "end": 2})
        width = weights.add(f"{node.name}.hidden", numpy.array([hidden]))
        h = tape.op("ConstantOfShape", [tape.op("Concat", [batch, width], {"axis": 0})])
    else:
        h = tape.op("Squeeze", [given, squeezed])
    last, output = tape.op_multi_out(
        "Scan", [h, sums], {"body": body, "num_scan_inputs": 1}, num_outputs=2
    )
    directions = weights.add("direction_axis", numpy.array([1]))
    outputs = (
        tape.op("Unsqueeze", [output, directions]),  # (T, 1, B, H)
        tape.op("Unsqueeze", [last, squeezed]),  # (1, B, H)
    )
    for place, value in enumerate(v for one in tape.nodes for v in one.outputs):
        value.name = f"{node.name}.by_step.{place}"
    for one in tape.nodes:
        one.name = f"{node.name}.{one.op_type}"
    onnx_ir.convenience.replace_nodes_and_values(
        node.graph, node, [node], tape.nodes, node.outputs, outputs[: len(node.outputs)]
    )


def _product(weights: Any, node: Any, place: int) -> list[Any]:
    """Return codes, scale, zero point (none) and bias of W or R: (inputs, 3H), and (3H)."""
    from thinrnn.onnx._passes.int8 import BIAS, COMPUTED, LEFT, quantized

    value = node.inputs[place]
    codes, scale = quantized(value.const_value.numpy()[0], per_row=weights.per_row)
    rows = codes.shape[0]
    biases = node.inputs[3] if len(node.inputs) > 3 else None
    weights.note(value, "GRU", COMPUTED)
    found = [
        weights.add(f"{value.name}.column_int8", codes.T),
        weights.add(f"{value.name}.column_scale", scale),
        None,
    ]
    if biases is not None:
        part = biases.const_value.numpy()[0, (place - 1) * rows : place * rows]
        found.append(weights.add(f"{value.name}.bias", part))
        weights.note(biases, "GRU", LEFT, BIAS)
    return found


def _one_step(from_h: list[Any], hidden: int) -> Any:
    """The graph of one step: h and W x_t + b in, the next h out, twice."""
    import onnx_ir

    kind = onnx_ir.TensorType(onnx_ir.DataType.FLOAT)
    tape = onnx_ir.tape.Tape()
    h, sums = (
        onnx_ir.Value(name=f"step.{name}", shape=onnx_ir.Shape(["batch", size]), type=kind)
        for name, size in (("h", hidden), ("sums", 3 * hidden))
    )
    own = tape.op(PRODUCT, [h, *from_h], domain=MICROSOFT)
    parts = {"axis": -1, "num_outputs": 3}
    z, r, n = tape.op_multi_out("Split", [sums], parts, num_outputs=3)  # in ONNX's order
    z_h, r_h, n_h = tape.op_multi_out("Split", [own], parts, num_outputs=3)
    z = tape.op("Sigmoid", [tape.op("Add", [z, z_h])])
    r = tape.op("Sigmoid", [tape.op("Add", [r, r_h])])
    n = tape.op("Tanh", [tape.op("Add", [n, tape.op("Mul", [r, n_h])])])
    state = tape.op("Add", [n, tape.op("Mul", [z, tape.op("Sub", [h, n])])])
    again = tape.op("Identity", [state])
    for place, value in enumerate(value for one in tape.nodes for value in one.outputs):
        value.name = f"step.{place}"
    for one in (state, again):
        one.shape, one.type = h.shape, h.type
    return onnx_ir.Graph([h, sums], [state, again], nodes=tape.nodes, name="step")
