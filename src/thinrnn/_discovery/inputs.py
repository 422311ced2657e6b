"""Features that a model's caller provides: which entry of which argument each layer reads."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinrnn._discovery.coupling import halves
from thinrnn._discovery.probe import Probe
from thinrnn._discovery.recording import Port
from thinrnn._model.tree import argument_names, is_number, tensors_in

Moved = dict[int, dict[Port, Tensor]]  # per tensor among the arguments, features that it moves


@dataclass(frozen=True)
class InputFeatures:
    """An argument whose entries along one axis are features, and which layers read each."""

    name: str
    size: int
    readers: dict[Port, Tensor]  # (features of the port, entries): this feature reads this entry


def moved_by_arguments(probe: Probe) -> Moved:
    """Return, per tensor among the arguments, which features move when all of it is changed."""
    moved = {}
    for index, leaf in enumerate(tensors_in(probe.arguments)):
        if is_number(leaf) and leaf.dim() > 0:
            everything = torch.ones(leaf.shape, dtype=torch.bool)
            seen = probe.look(argument=(index, everything))
            if not seen.diverged:
                moved[index] = {port: seen.features(port) for port in probe.ports}
    return moved


def find_inputs(probe: Probe, moved: Moved, free: dict[Port, Tensor]) -> list[InputFeatures]:
    """Return the arguments that are features; `free` tells which features no layer feeds."""
    names = argument_names(probe.model, probe.arguments)
    found = []
    for index, leaf in enumerate(tensors_in(probe.arguments)):
        ports = moved.get(index, {}).items()
        wanted = {port: features & free[port] for port, features in ports if port[2] == "input"}
        wanted = {port: features for port, features in wanted.items() if features.any()}
        for axis in range(leaf.dim() - 1, -1, -1) if wanted else ():
            readers = features_of(probe, index, leaf, axis, wanted)
            if readers is not None:
                found.append(InputFeatures(names[index], leaf.shape[axis], readers))
                break
    return found


def features_of(
    probe: Probe, index: int, leaf: Tensor, axis: int, wanted: dict[Port, Tensor]
) -> dict[Port, Tensor] | None:
    """Return which entry along an axis each feature reads, if each reads just one."""
    size = leaf.shape[axis]
    left = {port: w[:, None] & torch.ones(size, dtype=torch.bool) for port, w in wanted.items()}
    shape = [-1 if i == axis else 1 for i in range(leaf.dim())]
    for half in (half for pair in halves(torch.arange(size)) for half in pair):
        seen = probe.look(argument=(index, half.view(shape).expand(leaf.shape)))
        for port, candidates in left.items():
            candidates &= seen.features(port)[:, None] | ~half
    is_one = all(bool((c.sum(1) == wanted[port]).all()) for port, c in left.items())
    is_broadcast = size == 1 and any(int(c.sum()) > 1 for c in left.values())
    return left if is_one and not is_broadcast else None
