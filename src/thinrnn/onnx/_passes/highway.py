"""thinrnn.RHN in ONNX: a Scan over the steps, whose body is one time step.

While a model is traced, an RHN is one operator of ours, "thinrnn::Highway"; once the graph is
there, it is replaced by the Scan.
"""

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from thinrnn.nn.rhn import RHN

if TYPE_CHECKING:
    from thinrnn.onnx._trace.tracer import Tracer

DOMAIN, OPERATOR = "thinrnn", "Highway"


def run_rhn(tracer: "Tracer", rhn: RHN, input: Any, hx: Any = None) -> tuple[Tensor, Tensor]:
    """Return what an RHN returns, by way of a single operator."""
    is_batched = input.dim() == 3
    x = input if is_batched else input.unsqueeze(1)
    if rhn.batch_first and is_batched:
        x = x.transpose(0, 1)  # (T, B, m)
    given = None if hx is None else (hx.reshape(1, -1, rhn.hidden_size),)
    state, streamed = tracer.first_state(given, 1)
    s = x.new_zeros(x.shape[1], rhn.hidden_size) if state is None else state[0].squeeze(0)  # (B, n)
    from_x = F.linear(x, rhn.weight_ih)  # (T, B, 2n)
    weights = [*rhn._each("weight_hh"), *rhn._each("bias")]
    output, last = torch.onnx.ops.symbolic_multi_out(
        f"{DOMAIN}::{OPERATOR}",
        [from_x, s, *weights],
        dtypes=[x.dtype, x.dtype],
        shapes=[(*x.shape[:2], rhn.hidden_size), s.shape],
        version=1,
    )  # (T, B, n), (B, n)
    h_n = last.unsqueeze(0)
    if streamed:
        tracer.last.append(h_n)
    if not is_batched:
        return output.squeeze(1), h_n.squeeze(1)
    return output.transpose(0, 1) if rhn.batch_first else output, h_n


def expand_highways_(graph: Any) -> None:
    """Replace our own operator by ONNX's Scan."""
    import onnx_ir

    for node in list(graph):
        if (node.domain, node.op_type) != (DOMAIN, OPERATOR):
            continue
        from_x, s, *weights = node.inputs
        depth = len(weights) // 2
        body = _one_step(s, from_x, weights[:depth], weights[depth:])
        output, last = node.outputs
        attributes = [onnx_ir.AttrGraph("body", body), onnx_ir.AttrInt64("num_scan_inputs", 1)]
        scan = onnx_ir.Node("", "Scan", [s, from_x], attributes, num_outputs=2, name=node.name)
        pairs = list(zip((last, output), scan.outputs, strict=True))
        for old, new in pairs:
            new.shape, new.type = old.shape, old.type
        graph.insert_before(node, scan)
        onnx_ir.convenience.replace_all_uses_with(
            [old for old, _ in pairs], [new for _, new in pairs], True
        )
        for old, new in pairs:
            new.name, old.name = old.name, None
        graph.remove(node, safe=True)


def _one_step(s: Any, from_x: Any, matrices: list[Any], biases: list[Any]) -> Any:
    """The graph of one time step: the state and W x_t in, the next state out, twice."""
    import onnx_ir

    def value(name: str, like: Any, dims: slice) -> Any:
        shape = onnx_ir.Shape(list(like.shape)[dims])
        return onnx_ir.Value(name=name, shape=shape, type=like.type)

    nodes: list[Any] = []

    def add(operator: str, inputs: list[Any], name: str, count: int = 1, **given: Any) -> Any:
        new = onnx_ir.node(operator, inputs, given, num_outputs=count, name=f"step.{name}")
        for place, one in enumerate(new.outputs):
            one.name = f"step.{name}" if count == 1 else f"step.{name}.{place}"
        nodes.append(new)
        return new.outputs[0] if count == 1 else new.outputs

    first = state = value("step.s", s, slice(None))
    from_x_t = value("step.from_x", from_x, slice(1, None))
    for d, (U, b) in enumerate(zip(matrices, biases, strict=True)):
        a = add("Gemm", [state, U, b], f"a_d{d}", transB=1)  # (B, 2n)
        if d == 0:
            a = add("Add", [a, from_x_t], "a_x")
        h, t = add("Split", [a], f"split_d{d}", 2, axis=-1, num_outputs=2)
        h, t = add("Tanh", [h], f"h_d{d}"), add("Sigmoid", [t], f"t_d{d}")
        change = add("Mul", [add("Sub", [h, state], f"sub_d{d}"), t], f"mul_d{d}")
        state = add("Add", [change, state], f"s_d{d}")
    again = add("Identity", [state], "output")
    for one in (state, again):
        one.shape, one.type = first.shape, first.type
    return onnx_ir.Graph([first, from_x_t], [state, again], nodes=nodes, name="step")
