"""Forwards that cannot be traced, replaced in the copy of the model that is traced."""

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from thinrnn._surgery.full_width_inputs import FullWidthInput, Narrowing
from thinrnn.nn.rhn import RHN
from thinrnn.nn.rnn_stack import RNNStack, each_state
from thinrnn.onnx._passes.highway import DOMAIN, OPERATOR
from thinrnn.onnx._trace.operators import Weights
from thinrnn.onnx._trace.tracer import Tracer


def prepare_(model: nn.Module, tracer: Tracer) -> None:
    """Prepare a copied model for a tracer; backward cells of stacks become backward operators."""
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            # Its checks expect packed data to be what it is outside.
            module.check_forward_args = lambda *_: None  # type: ignore[method-assign]
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, FullWidthInput):
                hook.__class__ = _TracedInput
        if isinstance(module, RNNStack):
            module.forward = functools.partial(_run_stack, tracer, module)  # type: ignore
        if isinstance(module, RHN):
            module.forward = functools.partial(run_rhn, tracer, module)  # type: ignore


class _TracedInput(FullWidthInput):
    """A pick that compares widths only: a free batch size cannot be looked up in a set."""

    def _state(self, state: Any, narrowings: list[Narrowing]) -> Any:
        if isinstance(state, Tensor) and len(narrowings) == 1:
            return narrowings[0].apply(state, -1)
        parts = [narrowing.apply(s, -1) for s, narrowing in zip(state, narrowings, strict=True)]
        equal = len({part.shape[-1] for part in parts}) == 1
        return torch.stack(parts) if isinstance(state, Tensor) and equal else parts


def _run_stack(tracer: Tracer, stack: RNNStack, input: Any, hx: Any = None) -> tuple[Any, Any]:
    packed = input if isinstance(input, PackedSequence) else None
    x = input if packed is None else packed.data
    is_batched = x.dim() == 3
    batch_dim = 0 if stack.batch_first and packed is None else 1
    if not is_batched:
        x = x.unsqueeze(batch_dim)
    x = x.transpose(0, 1) if batch_dim == 0 else x  # (T, B, I)
    lengths = None if packed is None else tracer.lengths_of(packed.batch_sizes)
    given = stack._split_states(hx, (x.shape[1],) if is_batched else ())
    order, back = (None, None) if packed is None else packed[2:]
    if order is not None and hx is not None:
        given = each_state(given, lambda h: h.index_select(1, order))

    def run(cell: nn.RNNBase, x: Tensor, own: Any, backward: bool) -> tuple[Tensor, Any]:
        state = own if own is None or isinstance(own, tuple) else (own,)
        output, end = tracer.layer(stack.mode, x, [_weights(cell)], lengths, state, backward)
        return output, end if stack.mode == "LSTM" else end[0]

    output, last = stack._run(x, given, run)
    if packed is not None:
        if back is not None:
            last = each_state(last, lambda h: h.index_select(0, back))
        return PackedSequence(output, *packed[1:]), stack._join_states(last)
    output = output.transpose(0, 1) if batch_dim == 0 else output
    if not is_batched:
        output = output.squeeze(batch_dim)
        last = each_state(last, lambda h: h.squeeze(0))
    return output, stack._join_states(last)


def _weights(cell: nn.RNNBase) -> Weights:
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0")
    return Weights(*(getattr(cell, name, None) for name in names))  # type: ignore[arg-type]


def run_rhn(tracer: Tracer, rhn: RHN, input: Any, hx: Any = None) -> tuple[Tensor, Tensor]:
    """Run an RHN as a single operator."""
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
