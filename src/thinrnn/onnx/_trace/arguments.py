"""The arguments of a model as a flat list of named tensors, and back.

A packed sequence among them is two tensors for ONNX: the padded data (T, B, features) and the
lengths (B,).
"""

import inspect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from thinrnn._model.tree import call_arguments, map_tensors, paths_in, tensors_in
from thinrnn.errors import ExampleError


@dataclass
class PaddedSequence:
    """A packed sequence as ONNX sees it."""

    data: Tensor
    lengths: Tensor


class Arguments:
    """An example as named tensors, and the way to call the model with other tensors."""

    def __init__(self, model: nn.Module, example: Any) -> None:
        args, kwargs = call_arguments(example)
        self._args = tuple(_padded(a) for a in args)
        self._kwargs = {k: _padded(v) for k, v in kwargs.items()}
        try:
            tree = inspect.signature(model.forward).bind_partial(*self._args).arguments
        except TypeError as error:
            raise ExampleError(f"the example has {len(args)} arguments: {error}.") from None
        tree |= self._kwargs
        names = [path for name, value in tree.items() for path in paths_in(value, name)]
        self.names = unique(names)
        self.tensors = [_plain(t) for t in tensors_in((self._args, self._kwargs))]
        if not self.tensors:
            raise ExampleError("no tensor in the example: give what the model is called with.")

    def call(self, model: nn.Module, tensors: Sequence[Tensor]) -> Any:
        """Call the model with other tensors and return its result, packed sequences padded."""
        given = iter(tensors)
        args, kwargs = map_tensors((self._args, self._kwargs), lambda _: next(given))
        result = model(*map(_packed, args), **{k: _packed(v) for k, v in kwargs.items()})
        if isinstance(result, tuple) and type(result) is tuple:
            return tuple(_padded(part) for part in result)
        return _padded(result)


def unique(names: list[str]) -> list[str]:
    """Return the names, with numbers where several are equal."""
    counts, seen = Counter(names), Counter[str]()
    found = []
    for name in names:
        found.append(f"{name}.{seen[name]}" if counts[name] > 1 else name)
        seen[name] += 1
    return found


def _padded(value: Any) -> Any:
    return (
        PaddedSequence(*pad_packed_sequence(value)) if isinstance(value, PackedSequence) else value
    )


def _packed(value: Any) -> Any:
    if not isinstance(value, PaddedSequence):
        return value
    return pack_padded_sequence(value.data, value.lengths, enforce_sorted=False)


def _plain(tensor: Tensor) -> Tensor:
    """Return the tensor on the CPU, in float32 if it is floating point."""
    tensor = tensor.detach().cpu()
    return tensor.to(torch.float32) if tensor.is_floating_point() else tensor
