"""Calls of torch's recurrent functions, intercepted at the functions themselves.

Subclasses of nn.LSTM, hooks, weights computed on the fly: whatever a model does around its
recurrent layers, in the end it calls torch.lstm and the like.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from thinrnn._model.tree import tensors_in
from thinrnn.onnx._trace.operators import Weights

MODES: dict[Any, str] = {
    torch.lstm: "LSTM",
    torch.gru: "GRU",
    torch.rnn_tanh: "RNN_TANH",
    torch.rnn_relu: "RNN_RELU",
}
CELLS = (torch.lstm_cell, torch.gru_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell)
PACK, UNPACK = torch._pack_padded_sequence, torch._pad_packed_sequence
MAKE_ZEROS = (torch.zeros, torch.zeros_like, Tensor.new_zeros)
KEEP_ZEROS = (
    *(Tensor.__getitem__, Tensor.index_select, torch.index_select, Tensor.unbind, torch.unbind),
    *(Tensor.to, Tensor.contiguous, Tensor.detach, Tensor.expand, Tensor.repeat),
    *(Tensor.reshape, Tensor.view, Tensor.unsqueeze, Tensor.squeeze, torch.stack, torch.cat),
)


@dataclass(frozen=True)
class Call:
    """One call of torch.lstm, torch.gru, torch.rnn_tanh or torch.rnn_relu."""

    mode: str
    x: Tensor  # (T, B, I), or (B, T, I) with batch_first
    batch_sizes: Tensor | None
    hx: tuple[Tensor, ...]
    layers: list[list[Weights]]  # by layer and direction
    batch_first: bool

    @property
    def steps_and_batch(self) -> tuple[int, int]:
        first, second = self.x.shape[:2]
        return (second, first) if self.batch_first else (first, second)


def read_call(func: Any, args: tuple[Any, ...]) -> Call:
    """Return the arguments of one of torch's recurrent functions by name."""
    mode = MODES[func]
    # (x, hx, weights, has_bias, layers, dropout, train, bidirectional, batch_first), or packed
    # (x, batch_sizes, hx, weights, has_bias, layers, dropout, train, bidirectional)
    is_packed = isinstance(args[3], list | tuple)
    batch_sizes = args[1] if is_packed else None
    hx, flat, has_bias, layers = args[2:6] if is_packed else args[1:5]
    bidirectional = args[8] if is_packed else args[7]
    directions = 2 if bidirectional else 1
    each = len(flat) // (layers * directions)
    weights = [_weights(flat[i : i + each], has_bias) for i in range(0, len(flat), each)]
    return Call(
        mode,
        args[0],
        batch_sizes,
        tuple(hx) if mode == "LSTM" else (hx,),
        [weights[i : i + directions] for i in range(0, len(weights), directions)],
        not is_packed and args[8],
    )


def _weights(flat: Any, has_bias: bool) -> Weights:
    ih, hh, *rest = flat
    b_ih, b_hh = rest[:2] if has_bias else (None, None)
    hr = rest[-1] if len(rest) in (1, 3) else None
    return Weights(ih, hh, b_ih, b_hh, hr)


class Zeros:
    """Tensors known to be zero because they were created so, as most initial states are."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Tensor, int]] = {}

    def record(self, func: Any, args: Any, result: Any) -> None:
        """Record a call that has just returned."""
        if func in MAKE_ZEROS or (func in KEEP_ZEROS and self.include(tensors_in(args))):
            for tensor in tensors_in(result):
                self._known[id(tensor)] = (tensor, tensor._version)

    def include(self, tensors: Any) -> bool:
        """Return whether there are tensors and all of them are zero."""
        found = list(tensors)
        return bool(found) and all(
            id(t) in self._known and self._known[id(t)][1] == t._version for t in found
        )
