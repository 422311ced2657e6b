"""Recurrent states of layers of unequal size."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from thinrnn.errors import StateError


class States(list[Tensor]):
    """The final states of layers of unequal size: one tensor (batch, size) per layer and direction.

    `RNNStack` returns it instead of torch's tensor (layers * directions, batch, size). Index it
    like that tensor, as far as unequal sizes allow: `h_n[-1]`, `h_n[-1, :, :]` and `h_n[0, 3]` are
    tensors; `h_n[-2:]`, `h_n[:, 3]` and `h_n[..., :5]` are States again. Pass it back as the next
    initial state.

    Raises:
        AttributeError: for tensor methods such as `h_n.shape`; the message says to take one state.

    >>> h_n = States([torch.zeros(2, 4), torch.ones(2, 3)])
    >>> h_n[-1].shape, h_n[:, 0]
    (torch.Size([2, 3]), [tensor([0., 0., 0., 0.]), tensor([1., 1., 1.])])
    """

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, tuple):
            found: Any = super().__getitem__(index)
            return States(found) if isinstance(index, slice) else found
        first, *rest = index
        if first is Ellipsis:
            return States([state[index] for state in self])
        if isinstance(first, slice):
            return States([state[tuple(rest)] for state in super().__getitem__(first)])
        return super().__getitem__(first)[tuple(rest)]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"States has no {name!r}: it is a list of one tensor (batch, size) per layer and "
            f"direction, of unequal sizes. Take one of them, as in h_n[-1].{name}"
        )

    def detach(self) -> "States":
        """Return the same states, detached from the graph."""
        return States([state.detach() for state in self])


# Without this, torch.export would treat the list as one opaque value.
_pytree.register_pytree_node(
    States,
    lambda states: (list(states), None),
    lambda parts, _: States(parts),
    serialized_type_name="thinrnn.States",
    flatten_with_keys_fn=lambda states: (
        [(_pytree.SequenceKey(place), state) for place, state in enumerate(states)],
        None,
    ),
)


def split(name: str, state: Any, sizes: list[int], batch: tuple[int, ...]) -> list[Tensor]:
    """Return one tensor (1, batch, size) per cell from a stacked tensor or a list."""
    expected = [(*batch, size) for size in sizes]
    if _shapes(state) != expected:
        wanted = f"a list of one tensor per layer and direction, {_listed(expected)}"
        if len(set(sizes)) == 1:
            wanted = f"a tensor of shape {(len(sizes), *expected[0])} or {wanted}"
        raise StateError(
            f"RNNStack: {name} must be {wanted}; got {describe(state)}. "
            "Give the states that the module returned, or none to start from zeros"
        )
    parts = state.unbind(0) if isinstance(state, Tensor) else state
    return [part.reshape(1, *(batch or (1,)), part.size(-1)) for part in parts]


def join(states: list[Tensor]) -> Tensor | States:
    """Return one stacked tensor where all sizes agree, else States."""
    equal = len({state.size(-1) for state in states}) == 1
    return torch.stack(states) if equal else States(states)


def _shapes(state: Any) -> list[Any]:
    if isinstance(state, Tensor):
        return [tuple(state.shape[1:])] * state.size(0) if state.dim() else []
    if not isinstance(state, list | tuple):
        return []
    return [tuple(s.shape) if isinstance(s, Tensor) else type(s).__name__ for s in state]


def describe(state: Any) -> str:
    """Return what was given as a state, in words for an error message."""
    if isinstance(state, Tensor):
        return f"a tensor of shape {tuple(state.shape)}"
    if isinstance(state, list | tuple):
        return f"a {type(state).__name__} of {_listed(_shapes(state)) or 'nothing'}"
    return f"a {type(state).__name__}"


def _listed(items: Sequence[Any]) -> str:
    return ", ".join(map(str, items))
