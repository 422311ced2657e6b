"""Copies of a user's model, and its attributes restored after a call."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from thinrnn._model.tree import map_tensors

Module = TypeVar("Module", bound=nn.Module)
TORCHS = frozenset(nn.Module().__dict__)  # attributes that every module has
TABLES = frozenset(k for k, v in nn.Module().__dict__.items() if isinstance(v, dict))


def copy_module(model: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """Return a deep copy; `memo` holds replacements by id, as for `copy.deepcopy`.

    Tensors with a history (a state kept from the last call) are detached. What cannot be copied (a
    lock, an open file) is shared.
    """
    memo = {} if memo is None else memo
    with _DetachedCopies():
        try:
            return copy.deepcopy(model, dict(memo))
        except Exception:
            known = _itself(model) | memo
            for _, value in _attributes(model):
                if not _can_be_copied(value, dict(known)):
                    memo[id(value)] = _copy_of(value, dict(known))
            return copy.deepcopy(model, memo)


@contextmanager
def kept_attributes(model: nn.Module) -> Iterator[None]:
    """Undo what a call does to attributes, in place or not, and to buffers of the model."""
    tables = [v for m in model.modules() for k, v in m.__dict__.items() if k in TABLES]
    saved_tables = [(table, dict(table)) for table in tables]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    known = _itself(model)
    with _DetachedCopies():
        saved = [(m, _saved(m.__dict__, known)) for m in model.modules()]
    try:
        yield
    finally:
        for module, attributes in saved:
            module.__dict__.clear()
            module.__dict__.update(attributes)
        for table, entries in saved_tables:
            table.clear()
            table.update(entries)
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def to_float64_(model: Module) -> Module:
    """Bring a model to float64, tensors that are plain attributes included."""
    for module, name in [place for place, _ in _attributes(model)]:
        module.__dict__[name] = map_tensors(module.__dict__[name], _double)
    return model.double()


def _double(tensor: Tensor) -> Tensor:
    wanted = tensor.is_floating_point() and not isinstance(tensor, nn.Parameter)
    return tensor.double() if wanted else tensor


def _attributes(model: nn.Module) -> Iterator[tuple[tuple[nn.Module, str], Any]]:
    """Yield the attributes that are neither torch's nor ours, with where they are."""
    for module in model.modules():
        for name, value in module.__dict__.items():
            if name not in TORCHS and not name.startswith(("_thinrnn", "_flat_weight")):
                yield (module, name), value


def _itself(model: nn.Module) -> dict[int, Any]:
    """Return a memo that makes a copy of an attribute refer to the model's own parts."""
    parts = [*model.modules(), *model.parameters(), *model.buffers()]
    return {id(part): part for part in parts}


def _saved(attributes: dict[str, Any], known: dict[int, Any]) -> dict[str, Any]:
    return {
        k: v if k in TABLES or k.startswith("_thinrnn") else _copy_of(v, known)
        for k, v in attributes.items()
    }


def _can_be_copied(value: Any, known: dict[int, Any]) -> bool:
    try:
        copy.deepcopy(value, known)
    except Exception:
        return False
    return True


def _copy_of(value: Any, known: dict[int, Any]) -> Any:
    """Return a copy as deep as it gets: what cannot be copied is shared."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if id(value) in known:
        return known[id(value)]
    try:
        return copy.deepcopy(value, known)
    except Exception:
        pass
    try:
        copied = known[id(value)] = copy.copy(value)
    except Exception:
        return value
    if isinstance(value, dict):
        copied.update((k, _copy_of(v, known)) for k, v in value.items())
    elif isinstance(value, list):
        copied[:] = [_copy_of(v, known) for v in value]
    else:
        for name, part in getattr(value, "__dict__", {}).items():
            object.__setattr__(copied, name, _copy_of(part, known))
    return copied


class _DetachedCopies(TorchFunctionMode):
    """Lets tensors with a history be copied, which torch refuses."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is Tensor.__deepcopy__ and not args[0].is_leaf:
            tensor, memo = args
            memo[id(tensor)] = copied = tensor.detach().clone()
            return copied
        return func(*args, **(kwargs or {}))
