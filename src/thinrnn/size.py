"""How large a model is when each neuron is there with some probability.

With zeros and ones the result is the exact size of the cut model; with P(gate != 0) it is the
expected size, differentiable, as in the paper: a matrix that neurons produce (rows) and read
(columns) counts (sum of row probabilities) x (sum of column probabilities), and a neuron that reads
itself counts once, not squared.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from thinrnn.layers import (
    GATES,
    CellLayer,
    ChannelwiseLayer,
    EmbeddingLayer,
    Layer,
    RNNLayer,
    layer_of,
)
from thinrnn.plan import Plan, named_tensors

What = Literal["params", "macs"]


@dataclass
class Axis:
    """One dimension of a parameter: how many positions are always there, and whose the rest are."""

    fixed: int
    owners: dict[str, Tensor] = field(default_factory=dict)  # group -> positions of each neuron
    at_hand: dict[tuple[str, torch.device, torch.dtype], Tensor] = field(default_factory=dict)

    def positions(self, group: str, like: Tensor) -> Tensor:
        """Return a group's positions per neuron, on the device and in the type of another tensor."""
        key = (group, like.device, like.dtype)
        if key not in self.at_hand:
            self.at_hand[key] = self.owners[group].to(like)
        return self.at_hand[key]

    def length(self, present: dict[str, Tensor]) -> Tensor | float:
        """Return the expected number of positions."""
        total: Tensor | float = float(self.fixed)
        for group in self.owners:
            total = total + self.positions(group, present[group]) @ present[group]
        return total


@dataclass
class Entry:
    """One parameter: its dimensions, and what it counts for."""

    name: str
    axes: list[Axis]
    is_matrix: bool  # its elements are mult-adds of a step
    gates: int  # rows per neuron in a recurrent matrix (4 in an LSTM), else 0

    def elements(self, present: dict[str, Tensor]) -> Tensor | float:
        """Return the expected number of elements."""
        total: Tensor | float = 1.0
        for axis in self.axes:
            total = total * axis.length(present)
        if len(self.axes) >= 2:
            first, second = self.axes[:2]
            rest: Tensor | float = 1.0
            for axis in self.axes[2:]:
                rest = rest * axis.length(present)
            for group in first.owners.keys() & second.owners.keys():
                p = present[group]
                pairs = first.positions(group, p) * second.positions(group, p)
                total = total + rest * (pairs @ (p - p * p))
        return total


class Sizes:
    """The sizes of a model's parameters as functions of which neurons are present."""

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        self.groups = {group.name: group.size for group in plan.groups}
        layers = {n: la for n, m in model.named_modules() if (la := layer_of(n, m)) is not None}
        tensors = named_tensors(model)
        aliases: dict[int, list[str]] = {}
        for name, tensor in tensors.items():
            if isinstance(tensor, nn.Parameter):
                aliases.setdefault(id(tensor), []).append(name)
        self.entries = [
            Entry(
                names[0],
                [Axis(size) for size in tensors[names[0]].shape],
                any(_is_matrix(layers, name) for name in names),
                _gates(layers, names[0]),
            )
            for names in aliases.values()
        ]
        by_id = {key: e for key, e in zip(aliases, self.entries, strict=True)}
        for group in plan.groups:
            done = set()
            for s in group.slices:
                entry = by_id.get(id(tensors[s.parameter]))
                key = (id(tensors[s.parameter]), s.dim)
                if entry is None or key in done:
                    continue
                done.add(key)
                _, neurons = s.index()
                axis = entry.axes[s.dim]
                axis.owners[group.name] = torch.bincount(neurons, minlength=group.size).double()
                axis.fixed -= len(neurons)
        self.names = {e.name: e for e in self.entries}

    def total(self, present: dict[str, Tensor], what: What = "params") -> Tensor | float:
        """Return the (expected) number of parameters, or of mult-adds per step."""
        total: Tensor | float = 0.0
        for entry in self.entries:
            if what == "params" or entry.is_matrix:
                total = total + entry.elements(present)
        return total

    def all_present(self) -> dict[str, Tensor]:
        """Return the presence of every neuron of every group."""
        return {name: torch.ones(n, dtype=torch.float64) for name, n in self.groups.items()}

    def neuron_costs(self, what: What = "params") -> dict[str, Tensor]:
        """Return what each neuron adds to the size of the full model."""
        present = {n: p.requires_grad_() for n, p in self.all_present().items()}
        with torch.enable_grad():
            total = self.total(present, what)
            assert isinstance(total, Tensor)
            costs = torch.autograd.grad(total, list(present.values()), allow_unused=True)
        return {
            name: torch.zeros(self.groups[name]).double() if c is None else c
            for name, c in zip(present, costs, strict=True)
        }


def _owner(layers: dict[str, Layer], name: str) -> Layer | None:
    return layers.get(name.rpartition(".")[0])


def _is_matrix(layers: dict[str, Layer], name: str) -> bool:
    layer = _owner(layers, name)
    no_products = layer is None or isinstance(layer, (EmbeddingLayer, ChannelwiseLayer))
    return not no_products and "weight" in name.rpartition(".")[2]


def _gates(layers: dict[str, Layer], name: str) -> int:
    layer = _owner(layers, name)
    matrix = name.rpartition(".")[2]
    if not isinstance(layer, (RNNLayer, CellLayer)) or not matrix.startswith("weight"):
        return 0
    if matrix.startswith("weight_hr"):
        return 1
    if isinstance(layer, RNNLayer):
        return GATES[layer.module.mode]
    return layer.module.weight_hh.shape[0] // layer.module.weight_hh.shape[1]
