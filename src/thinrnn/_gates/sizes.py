"""How large a model is when each neuron is there with some probability.

With zeros and ones the result is the exact size of the cut model; with P(gate != 0) it is the
expected size, differentiable, as in the paper: a matrix that neurons produce (rows) and read
(columns) counts (sum of row probabilities) x (sum of column probabilities), and a neuron that reads
itself counts once, not squared.
"""

import copy
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, Self

import torch
from torch import Tensor, nn

from thinrnn._layers.base import Layer
from thinrnn._layers.registry import layers_of
from thinrnn.plan import Plan, named_tensors

# Modules with weights of several dimensions that are no matrices, beside the known layers.
NO_PRODUCTS = (nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.RMSNorm)
FREE = 1e-9  # of a limit: a neuron that takes less counts as if it took this
What = Literal["params", "macs", "latency"]  # latency: milliseconds, once they are measured
Presence = dict[str, Tensor]  # group -> probability that each neuron is there


@dataclass(frozen=True)
class Entry:
    """One parameter, and what it counts for."""

    name: str
    times: float  # how often a step multiplies by it
    gates: int  # rows per neuron in a recurrent matrix (4 in an LSTM), else 0


class Sizes:
    """The sizes of a model's parameters as functions of which neurons are present.

    With p the presence of all N neurons in a row, the lengths of all A dimensions that lose
    positions are `fixed + p @ counts`, counts (N, A) being the positions that each neuron owns.
    """

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        self.groups = {group.name: group.size for group in plan.groups}
        starts = dict(zip(self.groups, accumulate(self.groups.values(), initial=0), strict=False))
        layers = layers_of(model)
        tensors = named_tensors(model)
        names: dict[int, list[str]] = {}
        for name, tensor in tensors.items():
            if isinstance(tensor, nn.Parameter):
                names.setdefault(id(tensor), []).append(name)
        self.entries = [_entry(layers, model, plan, same) for same in names.values()]

        unowned = torch.zeros(sum(self.groups.values()), dtype=torch.float64)
        owned: dict[tuple[int, int], Tensor] = {}  # (tensor, dimension) -> counts (N,)
        for group in plan.groups:
            for s in group.slices:
                tensor = tensors[s.parameter]
                _, neurons = s.index()
                counts = owned.setdefault((id(tensor), s.dim), unowned.clone())
                first = starts[group.name]
                # tied parameters list the same positions twice, once under each name
                counts[first : first + group.size] = torch.bincount(neurons, minlength=group.size)
        columns, fixed, pairs, constant = [unowned], [1.0], [], []
        self.axes = torch.zeros(len(self.entries), 2, dtype=torch.long)
        for i, key in enumerate(names):
            shape = tensors[names[key][0]].shape
            dims = [d for d in range(len(shape)) if (key, d) in owned]
            assert len(dims) <= 2, f"{names[key][0]} loses positions in more than two dimensions"
            rest = [size for d, size in enumerate(shape) if d not in dims]
            constant.append(float(torch.tensor(rest).prod()) if rest else 1.0)
            for place, d in enumerate(dims):
                self.axes[i, place] = len(columns)
                columns.append(owned[key, d])
                fixed.append(float(shape[d] - owned[key, d].sum()))
            pairs.append(owned[key, dims[0]] * owned[key, dims[1]] if len(dims) == 2 else unowned)
        self.counts = torch.stack(columns, 1)  # (N, A)
        self.fixed = torch.tensor(fixed, dtype=torch.float64)  # (A,)
        self.pairs = torch.stack(pairs, 1)  # (N, E)
        self.constant = torch.tensor(constant, dtype=torch.float64)  # (E,)
        self.weights: dict[What, Tensor] = {  # what one element of each parameter counts for (E,)
            "params": torch.ones(len(self.entries), dtype=torch.float64),
            "macs": torch.tensor([e.times for e in self.entries], dtype=torch.float64),
        }
        self.base: dict[What, float] = {"params": 0.0, "macs": 0.0}  # of a model without elements
        self._at_hand: dict[tuple[torch.device, torch.dtype], tuple[Tensor, ...]] = {}

    def elements(self, present: Presence) -> Tensor:
        """Return the (expected) number of elements of each parameter, in the order of `entries`."""
        p = torch.cat([present[name] for name in self.groups])  # (N,)
        counts, fixed, pairs, constant, axes = self._constants(p)
        lengths = fixed + p @ counts  # (A,)
        rows, columns = lengths[axes[:, 0]], lengths[axes[:, 1]]
        return constant * (rows * columns + (p - p * p) @ pairs)

    def lengths(self, present: Tensor) -> Tensor:
        """Return the length of each dimension when these neurons, in a row, are there or not."""
        return self.fixed + present @ self.counts

    def size_of(self, lengths: Tensor, what: What) -> Tensor:
        """Return the exact size from lengths (..., A) of dimensions."""
        rows, columns = lengths[..., self.axes[:, 0]], lengths[..., self.axes[:, 1]]
        return (rows * columns) @ (self.constant * self.weights[what]) + self.base[what]

    def with_latency(self, weights: Tensor, base: float) -> Self:
        """Return sizes that know milliseconds too: per element of each parameter, and per call."""
        timed = copy.copy(self)
        timed.weights = {**self.weights, "latency": weights.double()}
        timed.base = {**self.base, "latency": base}
        return timed

    def _constants(self, like: Tensor) -> tuple[Tensor, ...]:
        key = (like.device, like.dtype)
        if key not in self._at_hand:
            numbers = (self.counts, self.fixed, self.pairs, self.constant)
            self._at_hand[key] = (*(t.to(like) for t in numbers), self.axes.to(like.device))
        return self._at_hand[key]

    def total(self, present: Presence, what: What = "params") -> Tensor:
        """Return the (expected) number of parameters or mult-adds per step, or milliseconds."""
        elements = self.elements(present)
        return elements @ self.weights[what].to(elements) + self.base[what]

    def all_present(self) -> Presence:
        """Return the presence of every neuron of every group."""
        return {name: torch.ones(n, dtype=torch.float64) for name, n in self.groups.items()}

    def neuron_costs(self, what: What, limit: float) -> Presence:
        """Return the part of a limit that one neuron more takes when all groups are equally thin.

        That is at the presence, the same for every neuron, at which the size is `limit`: a neuron
        is cheap once the layers that read it have become small.
        """
        low, high = 0.0, 1.0
        everybody = self.counts.sum(0)  # (A,)
        for _ in range(30):
            middle = (low + high) / 2
            is_small = bool(self.size_of(self.fixed + middle * everybody, what) < limit)
            low, high = (middle, high) if is_small else (low, middle)
        lengths = self.fixed + high * everybody
        counted = self.constant * self.weights[what]
        rows, columns = self.axes.T
        slopes = torch.zeros_like(lengths)  # what one position more in each dimension costs
        slopes.index_add_(0, rows, counted * lengths[columns])
        slopes.index_add_(0, columns, counted * lengths[rows])
        costs = (self.counts @ slopes / limit).clamp(min=FREE)  # (N,)
        return dict(zip(self.groups, costs.split(list(self.groups.values())), strict=True))


def _entry(layers: dict[str, Layer], model: nn.Module, plan: Plan, names: list[str]) -> Entry:
    if plan.applied:
        times = sum(plan.applied.get(name, 0.0) for name in names)
    else:
        times = float(any(_is_matrix(layers, model, name) for name in names))
    return Entry(names[0], times, _gates(layers, names[0]))


def _is_matrix(layers: dict[str, Layer], model: nn.Module, name: str) -> bool:
    """Whether the elements of a parameter are mult-adds.

    In modules other than the known layers, names tell a matrix (of nn.MultiheadAttention, of a
    hand-written cell, of a parametrization) from a learned state or a table of positions.
    """
    home, _, own = name.rpartition(".")
    layer = layers.get(home)
    if layer is not None:
        lengths = {computed.lengths for computed in layer.computed.values()}
        return layer.multiplies and "weight" in own and name not in lengths
    module = model.get_submodule(home)
    is_wide = sum(length > 1 for length in getattr(module, own).shape) > 1
    if isinstance(module, nn.utils.parametrize.ParametrizationList):
        own = home.rpartition(".")[2]
    return is_wide and "weight" in own and not isinstance(module, NO_PRODUCTS)


def _gates(layers: dict[str, Layer], name: str) -> int:
    for layer in layers.values():
        lengths = {computed.lengths for computed in layer.computed.values()}
        slots = [slot for space in layer.spaces.values() for slot in space.slots]
        own = [slot for slot in slots if layer.full_name(slot.parameter) == name]
        if own and layer.is_recurrent and "weight" in name and name not in lengths:
            return next((len(slot.starts) for slot in own if slot.dim == 0), 1)
    return 0
