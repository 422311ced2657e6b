"""Layers in sizes that a GPU likes, whatever the sizes of the model are.

Products of 16-bit matrices are two to four times slower where the bytes of a row are not a multiple
of 16, as with most sizes after pruning. On large GPUs a layer of at most 1024 neurons, in multiples
of 128, is one kernel for all its steps instead of some for each. Zeros are added on the
way in and taken away on the way out: a neuron without weights and with an empty state stays 0, in
LSTM, GRU and RNN, and sequences do not depend on one another.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

MULTIPLE = 8  # of rows of matrices, and of sequences where a layer is one kernel
ONE_KERNEL = 128  # of the neurons of such a layer
WIDEST, MOST = 1024, 128  # its neurons and sequences
MULTIPROCESSORS = 98  # of a GPU that is large enough
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
    _, batch, hidden = states[0].shape
    layers, batch_first = options[1], options[-1]
    fits = layers == 1 and hidden <= WIDEST and batch <= MOST
    is_one_kernel = fits and func is not torch.gru and _has_one_kernel(x)
    multiple = ONE_KERNEL if is_one_kernel else MULTIPLE
    more = -batch % MULTIPLE if is_one_kernel else 0
    wide = [_pad_weight(weight, GATES[func], hidden, multiple) for weight in weights]
    wide_states = [_pad(state, multiple, (0, more)) for state in states]
    given = wide_states if isinstance(hx, tuple | list) else wide_states[0]
    x = _pad(x, multiple, (0, 0, 0, more) if batch_first else (0, more))
    output, *last = func(x, given, wide, *options)
    output = output[:batch] if batch_first else output[:, :batch]
    return output[..., :hidden], *(state[:, :batch, :hidden].contiguous() for state in last)


def _pad_weight(weight: Tensor, gates: int, hidden: int, multiple: int) -> Tensor:
    """Pad the rows of each gate, and the columns of a matrix."""
    parts = weight.unflatten(0, (gates, hidden))
    rows = -hidden % multiple
    if weight.dim() == 1:
        return F.pad(parts, (0, rows)).flatten()
    return F.pad(parts, (0, -weight.shape[1] % multiple, 0, rows)).flatten(0, 1)


def _pad(x: Tensor, multiple: int = MULTIPLE, others: tuple[int, ...] = ()) -> Tensor:
    """Pad the last dimension, and others by so much."""
    more = (0, -x.shape[-1] % multiple, *others)
    return F.pad(x, more) if any(more) else x


def _is_16_bit(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_cuda and torch.is_autocast_enabled("cuda")


def _has_one_kernel(x: Tensor) -> bool:
    """Whether torch would ask cuDNN for such a kernel here, by the rule in torch itself."""
    if not x.is_cuda or torch.version.hip is not None:
        return False
    gpu = torch.cuda.get_device_properties(x.device)
    is_known = gpu.major >= 8 and gpu.minor != 6
    return bool(is_known and gpu.multi_processor_count >= MULTIPROCESSORS)


def _is_plain(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether this is a call with one direction, no packed sequence and no projection."""
    if len(args) != 9 or not isinstance(args[2], list | tuple):
        return False
    has_biases, layers, bidirectional = args[3], args[4], args[7]
    per_layer = 4 if has_biases else 2
    return not bidirectional and len(args[2]) == per_layer * layers
