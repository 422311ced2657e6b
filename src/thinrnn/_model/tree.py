"""Tensors inside whatever a model takes and returns: tuples, dicts, packed sequences, objects."""

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
# Symbolic sizes refer to all of the exporter's tables; walking through them takes minutes.
OPAQUE = (Tensor, nn.Module, ModuleType, torch.SymInt, torch.SymFloat, torch.SymBool)


def call_arguments(example: Any) -> Arguments:
    """Return positional and keyword arguments of an example.

    A tuple is positional arguments, a mapping keyword arguments; anything else, a tensor, a packed
    sequence or a named tuple, is the only argument.
    """
    if isinstance(example, tuple) and not hasattr(example, "_fields"):
        return example, {}
    if isinstance(example, Mapping):
        return (), dict(example)
    return (example,), {}


def parameters_of(model: nn.Module) -> list[inspect.Parameter]:
    """Return the parameters of a model's `forward`, of the model inside where it is a wrapper."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = list(inspect.signature(model.forward).parameters.values())
    children = list(model.children())
    if len(children) == 1 and all(p.kind in variable for p in found):
        return parameters_of(children[0])
    return found


def argument_names(model: nn.Module, arguments: Arguments) -> list[str]:
    """Return a name for each tensor among the arguments: "x", or "batch.x" inside a structure."""
    return paths_of([p.name for p in parameters_of(model)] or ["input"], arguments)


def paths_of(places: list[str], arguments: Arguments) -> list[str]:
    """Return a name for each tensor among the arguments, given those of the positional ones."""
    args, kwargs = arguments
    given = [(places[min(i, len(places) - 1)], value) for i, value in enumerate(args)]
    return [path for name, value in [*given, *kwargs.items()] for path in paths_in(value, name)]


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """Yield every tensor in a nested structure, in order."""
    for _, leaf in _named_leaves(tree, "", ()):
        if isinstance(leaf, Tensor):
            yield leaf


def paths_in(tree: Any, name: str) -> Iterator[str]:
    """Yield a name for each tensor of `tensors_in`: "batch.x" for `batch["x"]` or `batch.x`.

    The tensors of a list that are alike, sequences of a batch say, all have the list's name.
    """
    if isinstance(tree, (Tensor, PackedSequence)):
        yield name
        return
    parts = _parts(tree) or []
    alike = isinstance(tree, list) and len({_kind(value) for _, value in parts}) == 1
    for key, value in parts:
        yield from paths_in(value, name if alike else f"{name}.{key}")


def _kind(value: Any) -> Any:
    return value.shape[-1:] if isinstance(value, Tensor) else id(value)


def is_number(tensor: Tensor) -> bool:
    """Return whether the values of a tensor are numbers with a fraction, real or complex."""
    return tensor.is_floating_point() or tensor.is_complex()


def numbers_in(tree: Any) -> Iterator[Tensor]:
    """Yield every tensor in a structure and, as tensors, the floats and arrays of numpy too."""
    for _, number in named_numbers_in(tree):
        yield number


def named_numbers_in(tree: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield what `numbers_in` yields with its path: "1.0" for `tree[1][0]`, "h" for `tree["h"]`."""
    for path, leaf in _named_leaves(tree, "", ()):
        if isinstance(leaf, Tensor):
            yield path, leaf
        elif isinstance(leaf, float):
            yield path, torch.tensor(leaf, dtype=torch.float64)
        elif type(leaf).__module__ == "numpy" and hasattr(leaf, "dtype"):
            yield path, torch.as_tensor(leaf)


def map_tensors(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return the same structure with every tensor changed, in the order of `tensors_in`."""
    return _mapped(tree, change, ())


def _named_leaves(tree: Any, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, PackedSequence):
        yield path, tree.data
        return
    parts = _parts(tree)
    if parts is None:
        yield path, tree
    elif id(tree) not in above:  # an object may hold itself
        for key, value in parts:
            below = f"{path}.{key}" if path else str(key)
            yield from _named_leaves(value, below, (*above, id(tree)))


def _mapped(tree: Any, change: Callable[[Tensor], Tensor], above: tuple[int, ...]) -> Any:
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, PackedSequence):
        return PackedSequence(change(tree.data), *tree[1:])
    parts = _parts(tree)
    if parts is None or id(tree) in above:
        return tree
    new = [(key, _mapped(value, change, (*above, id(tree)))) for key, value in parts]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(value for _, value in new))
    if isinstance(tree, (list, tuple)):
        return type(tree)(value for _, value in new)
    changed = copy.copy(tree)
    for (key, value), (_, old) in zip(new, parts, strict=True):
        if value is old:
            continue
        if isinstance(changed, MutableMapping):
            changed[key] = value
        else:
            object.__setattr__(changed, key, value)  # frozen dataclasses too
    return changed


def _parts(tree: Any) -> list[tuple[Any, Any]] | None:
    """Return what a structure is made of, by key; None for what is no structure."""
    if isinstance(tree, Mapping):
        return list(tree.items())
    if isinstance(tree, (list, tuple)):
        return list(enumerate(tree))
    if isinstance(tree, OPAQUE) or callable(tree):
        return None
    if dataclasses.is_dataclass(tree):
        return [(field.name, getattr(tree, field.name)) for field in dataclasses.fields(tree)]
    own = getattr(tree, "__dict__", None)
    return None if own is None else list(own.items())
