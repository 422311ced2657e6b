"""thinrnn.RHN in ONNX: a Scan over the steps, whose body is one time step.

A traced graph holds an RHN as one operator of ours, "thinrnn::Highway".
"""

from typing import Any

DOMAIN, OPERATOR = "thinrnn", "Highway"


def expand_highways_(graph: Any) -> None:
    """Replace our own operator by ONNX's Scan."""
    import onnx_ir

    for node in list(graph):
        if (node.domain, node.op_type) != (DOMAIN, OPERATOR):
            continue
        from_x, s, *weights = node.inputs
        depth = len(weights) // 2
        body = _one_step(s, from_x, weights[:depth], weights[depth:])
        attributes = {"body": body, "num_scan_inputs": 1}
        scan = onnx_ir.node("Scan", [s, from_x], attributes, num_outputs=2, name=node.name)
        onnx_ir.convenience.replace_nodes_and_values(  # (output, last) there, (last, output) here
            graph, node, [node], [scan], node.outputs, scan.outputs[::-1]
        )


def _one_step(s: Any, from_x: Any, matrices: list[Any], biases: list[Any]) -> Any:
    """The graph of one time step: the state and W x_t in, the next state out, twice."""
    import onnx_ir

    tape = onnx_ir.tape.Tape()
    first = state = onnx_ir.Value(name="step.s", shape=s.shape, type=s.type)
    shape = onnx_ir.Shape(list(from_x.shape)[1:])
    from_x_t = onnx_ir.Value(name="step.from_x", shape=shape, type=from_x.type)
    for d, (U, b) in enumerate(zip(matrices, biases, strict=True)):
        a = tape.op("Gemm", [state, U, b], {"transB": 1})  # (B, 2n)
        if d == 0:
            a = tape.op("Add", [a, from_x_t])
        halves = {"axis": -1, "num_outputs": 2}
        h, t = tape.op_multi_out("Split", [a], halves, num_outputs=2)
        h, t = tape.op("Tanh", [h]), tape.op("Sigmoid", [t])
        state = tape.op("Add", [tape.op("Mul", [tape.op("Sub", [h, state]), t]), state])
    again = tape.op("Identity", [state])
    for place, value in enumerate(value for node in tape.nodes for value in node.outputs):
        value.name = f"step.{place}"  # different from all names outside the loop
    for one in (state, again):
        one.shape, one.type = first.shape, first.type
    return onnx_ir.Graph([first, from_x_t], [state, again], nodes=tape.nodes, name="step")
