"""Tensors inside whatever a model takes and returns: tuples, dicts, dataclasses, packed sequences."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def call_arguments(example: Any) -> Arguments:
    """Return positional and keyword arguments of an example: a tensor, a tuple, or a dict."""
    if isinstance(example, PackedSequence):
        return (example,), {}
    if isinstance(example, tuple):
        return example, {}
    if isinstance(example, Mapping):
        return (), dict(example)
    return (example,), {}


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """Yield every tensor in a nested structure, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, PackedSequence):
        yield tree.data
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from tensors_in(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from tensors_in(value)
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        for field in dataclasses.fields(tree):
            yield from tensors_in(getattr(tree, field.name))


def map_tensors(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return the same structure with every tensor changed."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, PackedSequence):
        return PackedSequence(change(tree.data), *tree[1:])
    if isinstance(tree, dict):
        return type(tree)((k, map_tensors(v, change)) for k, v in tree.items())
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(v, change) for v in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_tensors(v, change) for v in tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [f.name for f in dataclasses.fields(tree) if f.init]
        changed = {name: map_tensors(getattr(tree, name), change) for name in names}
        return dataclasses.replace(tree, **changed)
    return tree
