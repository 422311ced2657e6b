"""Features that a model's caller provides: which entry of which argument each layer reads."""

import inspect
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from thinrnn._discovery.probe import Probe
from thinrnn._discovery.recording import Port
from thinrnn._discovery.subsets import halves
from thinrnn._model.tree import Arguments, paths_in, tensors_in


@dataclass(frozen=True)
class InputFeatures:
    """An argument whose entries along one axis are features, and who reads which of them."""

    name: str
    size: int
    readers: dict[Port, Tensor]  # (features of the port, entries): this feature reads this entry


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
    args, kwargs = arguments
    places = [parameter.name for parameter in parameters_of(model)] or ["input"]
    given = [(places[min(i, len(places) - 1)], value) for i, value in enumerate(args)]
    return [path for name, value in [*given, *kwargs.items()] for path in paths_in(value, name)]


def moved_by_arguments(probe: Probe) -> dict[int, dict[Port, Tensor]]:
    """Return, per tensor among the arguments, which features move when all of it is changed."""
    moved = {}
    for index, leaf in enumerate(tensors_in(probe.arguments)):
        if leaf.is_floating_point() and leaf.dim() > 0:
            everything = torch.ones(leaf.shape, dtype=torch.bool)
            seen = probe.look(argument=(index, everything))
            if not seen.astray:
                moved[index] = {port: seen.features(port) for port in probe.ports}
    return moved


def find_inputs(
    probe: Probe, moved: dict[int, dict[Port, Tensor]], free: dict[Port, Tensor]
) -> list[InputFeatures]:
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
