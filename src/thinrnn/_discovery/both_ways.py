"""Matrices that are read along both dimensions: `widen(x)`, and `F.linear(h, widen.weight.t())`.

A gate acts on one dimension of a matrix. The neurons along the other need none there, if wherever
they are made they are gated already: an embedding that is also the output layer hands out zeros for
a closed neuron. The trial cut proves it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from thinrnn.plan import Group, Refusal

Place = tuple[int, int]  # (tensor, dimension)


def read_one_way(
    groups: Sequence[Group], tensors: Mapping[str, Tensor]
) -> tuple[list[Group], list[Refusal]]:
    """Return the groups with each tensor read along one dimension, and those refused for it."""
    kept = list(groups)
    refused = []
    for tensor in dict.fromkeys(id(t) for t in tensors.values()):
        name = next(n for n, t in tensors.items() if id(t) == tensor)
        dims = sorted({d for g in kept for t, d in places(g, "read", tensors) if t == tensor})
        # Those that need the gate most stay: dimensions that can do without come first.
        dims.sort(key=lambda dim: not _can_do_without((tensor, dim), kept, tensors))
        for dim in dims[:-1]:
            place = (tensor, dim)
            if _can_do_without(place, kept, tensors):
                kept = [_without_gate(group, place, tensors) for group in kept]
            else:
                gone = [g for g in kept if place in places(g, "read", tensors)]
                reason = f"'{name}' is read along two dimensions"
                refused += [Refusal(group, reason) for group in gone]
                kept = [group for group in kept if group not in gone]
    return kept, refused


def places(group: Group, role: str, tensors: Mapping[str, Tensor]) -> set[Place]:
    """Return where a group produces or reads, whatever the names of the tensors are."""
    return {(id(tensors[s.parameter]), s.dim) for s in group.slices if s.role == role}


def _can_do_without(place: Place, groups: Sequence[Group], tensors: Mapping[str, Tensor]) -> bool:
    """Whether all neurons that are read at a place come from where they are gated."""
    for group in groups:
        reads = places(group, "read", tensors) - {place}
        made = places(group, "produce", tensors) - {place}
        if place in places(group, "read", tensors) and (not made or not made <= reads):
            return False
    return True


def _without_gate(group: Group, place: Place, tensors: Mapping[str, Tensor]) -> Group:
    """Return the group that still owns its positions at a place, but no longer gates them."""
    slices = [
        replace(s, role="produce") if (id(tensors[s.parameter]), s.dim) == place else s
        for s in group.slices
    ]
    return replace(group, slices=tuple(dict.fromkeys(slices)))
