"""A model while it is traced: recurrent functions become ONNX operators, packing becomes lengths.

A packed sequence is traced as what it was packed from: data (T, B, features), padding included,
with the lengths beside it. So the longest sequence of a batch has to fill the time axis.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode

from thinrnn._surgery.full_width_inputs import Choice, Pick
from thinrnn.nn.rhn import RHN
from thinrnn.nn.rnn_stack import RNNStack
from thinrnn.onnx._passes.highway import run_rhn
from thinrnn.onnx._trace.calls import MODES, PACK, UNPACK, Call, Zeros, read_call
from thinrnn.onnx._trace.operators import State, Weights, run_layer


class Tracer(TorchFunctionMode):
    """Stands between a traced model and torch.

    With `states`, layers that would start from zeros start from these instead, in the order in
    which they are called; `last` then has where each of them ended.
    """

    def __init__(self, states: Sequence[Tensor] | None = None) -> None:
        super().__init__()
        self.last: list[Tensor] = []
        self._states: Iterator[Tensor] | None = None if states is None else iter(states)
        self._zeros = Zeros()
        self._lengths: dict[int, tuple[Tensor, Tensor, Any]] = {}  # by batch_sizes

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in MODES:
            return self._run(read_call(func, args))
        if func is PACK:
            return self._pack(*args)
        if func is UNPACK:
            return self._unpack(*args)
        if func is Tensor.__getitem__ and id(args[0]) in self._lengths and args[1] == 0:
            return self._lengths[id(args[0])][2]  # the batch, which torch reads from batch_sizes
        result = func(*args, **(kwargs or {}))
        self._zeros.watch(func, args, result)
        return result

    def layer(
        self,
        mode: str,
        x: Tensor,
        weights: list[Weights],
        lengths: Tensor | None,
        given: State | None,
        reverse: bool = False,
    ) -> tuple[Tensor, State]:
        """Run one layer from the given state, or from the next one of the caller's."""
        state, streamed = self.first_state(given, 2 if mode == "LSTM" else 1)
        output, last = run_layer(mode, x, weights, lengths=lengths, state=state, reverse=reverse)
        if streamed:
            self.last += last
        return output, last

    def first_state(self, given: State | None, count: int) -> tuple[State | None, bool]:
        """Return where a layer starts from (none: zeros), and whether its caller streams it."""
        if given is not None and not self._zeros.include(given):
            return given, False
        if self._states is None:
            return None, False
        return tuple(next(self._states) for _ in range(count)), True

    def lengths_of(self, batch_sizes: Tensor) -> Tensor:
        """Return the lengths (B,) behind the batch sizes of a packed sequence."""
        return self._lengths[id(batch_sizes)][1]

    def _run(self, call: Call) -> tuple[Tensor, ...]:
        x = call.x.transpose(0, 1) if call.batch_first else call.x
        lengths = None if call.batch_sizes is None else self.lengths_of(call.batch_sizes)
        from_zeros = self._zeros.include(call.hx)
        last: list[State] = []
        for place, weights in enumerate(call.layers):
            rows = slice(place * len(weights), (place + 1) * len(weights))
            given = None if from_zeros else tuple(h[rows] for h in call.hx)
            x, state = self.layer(call.mode, x, weights, lengths, given)
            last.append(state)
        states = [torch.cat(parts) for parts in zip(*last, strict=True)]
        return (x.transpose(0, 1) if call.batch_first else x, *states)

    def _pack(self, padded: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
        data = padded.transpose(0, 1) if batch_first else padded
        batch_sizes = torch.zeros(data.shape[0], dtype=torch.int64)
        self._lengths[id(batch_sizes)] = (batch_sizes, lengths, data.shape[1])
        return data, batch_sizes

    def _unpack(
        self, data: Tensor, batch_sizes: Tensor, batch_first: bool, value: float, _: Any
    ) -> tuple[Tensor, Tensor]:
        lengths = self.lengths_of(batch_sizes)
        inside = torch.arange(data.shape[0])[:, None] < lengths  # (T, B)
        inside = inside.reshape(*inside.shape, *[1] * (data.dim() - 2))
        padded = torch.where(inside, data, torch.full((), value, dtype=data.dtype))
        return padded.transpose(0, 1) if batch_first else padded, lengths


def prepare_(model: nn.Module, tracer: Tracer) -> None:
    """Make a copied model ready for a tracer; stacks run backward cells as backward operators."""
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            # Its checks expect packed data to be what it is outside.
            module.check_forward_args = lambda *_: None  # type: ignore[method-assign]
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, Pick):
                hook.__class__ = _TracedPick
        if isinstance(module, RNNStack):
            module.forward = functools.partial(_run_stack, tracer, module)  # type: ignore
        if isinstance(module, RHN):
            module.forward = functools.partial(run_rhn, tracer, module)  # type: ignore


class _TracedPick(Pick):
    """A pick that compares widths alone: a batch that is free cannot be looked up in a set."""

    def _state(self, state: Any, choices: list[Choice]) -> Any:
        if isinstance(state, Tensor) and len(choices) == 1:
            return choices[0].apply(state, -1)
        parts = [choice.apply(s, -1) for s, choice in zip(state, choices, strict=True)]
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
    if packed is not None and packed.sorted_indices is not None and hx is not None:
        given = [_each(s, lambda h: h.index_select(1, packed.sorted_indices)) for s in given]

    last: list[Any] = []
    outputs: list[Tensor] = []
    for (name, cell), own in zip(stack.cells.items(), given, strict=True):
        backward = name.endswith("_reverse")
        if not backward and outputs:
            x, outputs = torch.cat(outputs, -1), []
        state = None if own is None else (own if isinstance(own, tuple) else (own,))
        output, end = tracer.layer(stack.mode, x, [_weights(cell)], lengths, state, backward)
        outputs.append(output)
        end = tuple(h.squeeze(0) for h in end)
        last.append(end if stack.mode == "LSTM" else end[0])
    output = torch.cat(outputs, -1) if len(outputs) > 1 else outputs[0]

    if packed is not None:
        if packed.unsorted_indices is not None:
            back = packed.unsorted_indices
            last = [_each(s, lambda h: h.index_select(0, back)) for s in last]
        return PackedSequence(output, *packed[1:]), stack._join_states(last)
    output = output.transpose(0, 1) if batch_dim == 0 else output
    if not is_batched:
        output = output.squeeze(batch_dim)
        last = [_each(s, lambda h: h.squeeze(0)) for s in last]
    return output, stack._join_states(last)


def _weights(cell: nn.RNNBase) -> Weights:
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0")
    return Weights(*(getattr(cell, name, None) for name in names))  # type: ignore[arg-type]


def _each(state: Any, change: Any) -> Any:
    return tuple(map(change, state)) if isinstance(state, tuple) else change(state)
