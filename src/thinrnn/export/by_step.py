"""Wide layers side by side, computed step by step.

    x -> layer --+                               +- step: x_t -> layer --+            -+
                 +- Concat (T, B, V)   becomes   |                       +- Concat     | for all t
    z -> layer --+                               +-       z_t -> layer --+            -+

A Concat of all steps reads from memory what the layers have just written there, a fifth of the
time of a small language model; what they write for one step is still in the cache.
"""

from typing import Any

from thinrnn.export.editor import replace_chain_

LAYER = "DynamicQuantizeMatMul"
WIDE = 4096  # outputs; a batch of fewer stays in the cache for some steps


def by_step_(graph: Any) -> None:
    """Compute 8-bit layers whose outputs are joined to an output (T, B, V) one step at a time."""
    for value in list(graph.outputs):
        join = value.producer()
        if join is not None and join.op_type == "Concat" and _is_wide(value):
            layers = [one.producer() for one in join.inputs]
            if _is_last(join, value) and all(_is_layer(one) for one in layers):
                replace_chain_(graph, [_scan(layers, join)], instead_of=[*layers, join])


def _is_wide(value: Any) -> bool:
    shape = list(value.shape)
    return len(shape) == 3 and str(shape[0]) == "time" and int(shape[2]) >= WIDE


def _is_last(join: Any, value: Any) -> bool:
    """Whether the last axes are joined, and the result is an output and nothing else."""
    return join.attributes["axis"].value in (-1, 2) and not value.uses()


def _is_layer(node: Any) -> bool:
    if node is None or node.op_type != LAYER or len(node.outputs[0].uses()) > 1:
        return False
    shape = node.inputs[0].shape
    return shape is not None and len(shape) == 3 and not node.outputs[0].is_graph_output()


def _scan(layers: list[Any], join: Any) -> Any:
    """Return the operator that goes through the steps; its body are the layers and their Concat."""
    import onnx_ir

    def step_of(value: Any) -> Any:
        shape = onnx_ir.Shape(list(value.shape)[1:])
        return onnx_ir.Value(name=f"step.{value.name}", shape=shape, type=value.type)

    nodes = []
    steps = {node.inputs[0]: step_of(node.inputs[0]) for node in layers}
    for old in layers:
        inputs = [steps[old.inputs[0]], *old.inputs[1:]]
        new = onnx_ir.node(LAYER, inputs, domain=old.domain, name=old.name)
        new.outputs[0].name = f"step.{old.outputs[0].name}"
        nodes.append(new)
    ends = [node.outputs[0] for node in nodes]
    last = step_of(join.outputs[0])
    nodes.append(onnx_ir.node("Concat", ends, {"axis": -1}, outputs=[last], name=join.name))
    body = onnx_ir.Graph(list(steps.values()), [last], nodes=nodes, name="step")
    attributes = [
        onnx_ir.AttrGraph("body", body),
        onnx_ir.AttrInt64("num_scan_inputs", len(steps)),
    ]
    return onnx_ir.Node("", "Scan", list(steps), attributes, name=f"{join.name}.by_step")
