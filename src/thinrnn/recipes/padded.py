"""Layers in sizes that the matrix units of a GPU like, whatever the sizes of the model are.

Products of 16-bit matrices are two to four times slower where a row is no multiple of 16 bytes, and
1500 neurons, or what is left of them, seldom are. Zeros are added on the way in and taken away on
the way out: a neuron without weights and with an empty state stays 0, in LSTM, GRU and RNN.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

MULTIPLE = 8
# How many matrices lie above one another in a weight.
GATES: dict[Any, int] = {torch.lstm: 4, torch.gru: 3, torch.rnn_tanh: 1, torch.rnn_relu: 1}


class Padded(TorchFunctionMode):
    """Inside `with`, recurrent and linear layers compute in padded sizes under autocast on a GPU.

    Outputs and gradients are the same but for rounding.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if (func is F.linear or func in GATES) and _is_16_bit(args[0]):
            if func is F.linear:
                return padded_linear(*args, **kwargs)
            if not kwargs and _is_plain(func, args):
                return padded_rnn(func, *args)
        return func(*args, **kwargs)


def padded_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return what `F.linear` returns."""
    return F.linear(_pad(x), _pad(weight), bias)


def padded_rnn(func: Any, x: Tensor, hx: Any, weights: Sequence[Tensor], *options: Any) -> Any:
    """Return what `torch.lstm` and its like return for one direction: output, then each state."""
    states = hx if isinstance(hx, tuple | list) else (hx,)
    hidden = states[0].shape[-1]
    wide = [_pad_weight(weight, GATES[func], hidden) for weight in weights]
    wide_states = [_pad(state) for state in states]
    given = wide_states if isinstance(hx, tuple | list) else wide_states[0]
    output, *last = func(_pad(x), given, wide, *options)
    return output[..., :hidden], *(state[..., :hidden] for state in last)


def _pad_weight(weight: Tensor, gates: int, hidden: int) -> Tensor:
    """Pad the rows of each gate, and the columns of a matrix."""
    parts = weight.unflatten(0, (gates, hidden))
    rows = -hidden % MULTIPLE
    if weight.dim() == 1:
        return F.pad(parts, (0, rows)).flatten()
    return F.pad(parts, (0, -weight.shape[1] % MULTIPLE, 0, rows)).flatten(0, 1)


def _pad(x: Tensor) -> Tensor:
    """Pad the last dimension."""
    more = -x.shape[-1] % MULTIPLE
    return F.pad(x, (0, more)) if more else x


def _is_16_bit(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_cuda and torch.is_autocast_enabled("cuda")


def _is_plain(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether this is a call with one direction, no packed sequence and no projection."""
    if len(args) != 9 or not isinstance(args[2], list | tuple):
        return False
    has_biases, layers, bidirectional = args[3], args[4], args[7]
    per_layer = 4 if has_biases else 2
    return not bidirectional and len(args[2]) == per_layer * layers
