"""The widest of several layers side by side, computed step by step.

    x -> layer ------+                          x -> layer ---> for all t: y_t -----------+
                     +- Concat (T, B, V)   ->                                             +- Concat
    z -> wide layer -+                          z ------------> for all t: z_t -> layer --+

A Concat of all steps reads from memory what the layers have just written there, a fifth of the
time of a small language model; what the widest writes for one step is still in the cache.
"""

from typing import Any

from thinrnn.onnx._passes.edit import replace

LAYER = "DynamicQuantizeMatMul"
WIDE = 4096  # outputs; a batch of fewer stays in the cache for some steps


def by_step_(graph: Any) -> None:
    """Compute the widest 8-bit layer of those that are joined to an output (T, B, V) by steps."""
    for value in list(graph.outputs):
        join = value.producer()
        if join is None or join.op_type != "Concat" or not _is_wide(join):
            continue
        widest = max(join.inputs, key=lambda one: one.shape[2])
        layer = widest.producer()
        if layer is not None and layer.op_type == LAYER and len(widest.uses()) == 1:
            replace([layer, join], [_scan(layer, join)])


def body_of(scan: Any) -> Any:
    """Return the graph of one step of a loop."""
    return scan.attributes["body"].as_graph()


def _is_wide(join: Any) -> bool:
    """Say whether many outputs are joined, along the last axis, and nothing else reads them."""
    (value,) = join.outputs
    if value.uses() or any(one.shape is None for one in (value, *join.inputs)):
        return False
    shape = list(value.shape)
    along_last = join.attributes["axis"].value in (-1, 2)
    return len(shape) == 3 and str(shape[0]) == "time" and along_last and shape[2] >= WIDE


def _scan(layer: Any, join: Any) -> Any:
    """Return the operator that goes through the steps; its body is the layer and the Concat."""
    import onnx_ir

    def step_of(value: Any) -> Any:
        shape = onnx_ir.Shape(list(value.shape)[1:])
        return onnx_ir.Value(name=f"step.{value.name}", shape=shape, type=value.type)

    (wide,) = layer.outputs
    parts = [layer.inputs[0] if value is wide else value for value in join.inputs]
    steps = {value: step_of(value) for value in parts}
    inside = onnx_ir.node(
        LAYER,
        [steps[layer.inputs[0]], *layer.inputs[1:]],
        domain=layer.domain,
        outputs=[step_of(wide)],
        name=layer.name,
    )
    ends = [inside.outputs[0] if value is wide else steps[value] for value in join.inputs]
    last = step_of(join.outputs[0])
    together = onnx_ir.node("Concat", ends, {"axis": -1}, outputs=[last], name=join.name)
    body = onnx_ir.Graph(list(steps.values()), [last], nodes=[inside, together], name="step")
    attributes: dict[str, Any] = {"body": body, "num_scan_inputs": len(steps)}
    return onnx_ir.node("Scan", list(steps), attributes, name=f"{join.name}.by_step")
