"""During tracing, recurrent functions become ONNX operators, and packing becomes lengths.

A packed sequence is traced as its padded data (T, B, features) and its lengths. The longest
sequence of a batch therefore has to fill the time axis.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from thinrnn.onnx._trace.calls import MODES, PACK, UNPACK, Call, Zeros, read_call
from thinrnn.onnx._trace.operators import State, Weights, run_layer


class Tracer(TorchFunctionMode):
    """Replaces torch's recurrent functions while a model is traced.

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
        self._zeros.record(func, args, result)
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
        """Run one layer from the given state, or from the caller's next state when streaming."""
        state, streamed = self.first_state(given, 2 if mode == "LSTM" else 1)
        output, last = run_layer(mode, x, weights, lengths=lengths, state=state, reverse=reverse)
        if streamed:
            self.last += last
        return output, last

    def first_state(self, given: State | None, count: int) -> tuple[State | None, bool]:
        """Return the initial state of a layer, None for zeros, and whether it is streamed."""
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
