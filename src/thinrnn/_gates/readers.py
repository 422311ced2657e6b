"""The parameters that are gated: which gate belongs to which of their positions.

placement="readers"   U * s along the columns that read the neurons
placement="both"      W * (z s^T), U * (s s^T): also along the rows of recurrent matrices that
                      produce them, as in the paper
"""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from thinrnn._gates.scaled_weight import Scratch, along, scale
from thinrnn._layers.computed import norm_except, norms_of, with_lengths
from thinrnn._layers.registry import is_recurrent
from thinrnn.errors import GateError, PlanError
from thinrnn.group import NormSlice, Role, Slice
from thinrnn.plan import Plan, named_tensors

Placement = Literal["readers", "both"]


class Axis:
    """One dimension of a gated parameter, and the gate of each position along it."""

    def __init__(self, dim: int, role: Role, size: int) -> None:
        self.dim = dim
        self.role = role
        self.groups: list[str] = []
        self.index = torch.full((size,), -1)  # position -> entry of the groups' gates in a row
        self.is_plain = False  # position i simply belongs to gate i; known without the device

    def add(self, s: Slice | NormSlice, group: str, plan: Plan) -> None:
        """Give the positions of a slice the gates of its group."""
        if group not in self.groups:
            self.groups.append(group)
        positions, neurons = s.index()
        before = sum(plan[g].size for g in self.groups[: self.groups.index(group)])
        self.index[positions] = neurons + before
        gates = torch.arange(sum(plan[g].size for g in self.groups))
        self.is_plain = torch.equal(self.index, gates)

    def factors(self, values: dict[str, Tensor]) -> Tensor:
        """Return the gate of each position; 1 where there is none."""
        rows = [values[group] for group in self.groups]
        row = rows[0] if len(rows) == 1 else torch.cat(rows)
        if self.is_plain:
            return row
        if self.index.device != row.device:
            self.index = self.index.to(row.device)
        return torch.where(self.index < 0, 1.0, row[self.index.clamp(min=0)]).to(row.dtype)


class Reader:
    """One gated parameter, and all the places where modules hold it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.axes: list[Axis] = []
        self.homes: list[tuple[nn.Module, str]] = []
        self.lengths: Reader | None = None  # of rows under weight norm: they follow the columns
        self.norm_dim = -1
        self.scratch = Scratch()

    def axis(self, dim: int, role: Role, size: int) -> Axis:
        """Return the axis along a dimension, a new one if there is none yet."""
        for axis in self.axes:
            if axis.dim == dim:
                return axis
            if axis.role == role == "read":
                raise PlanError(
                    f"'{self.name}' is read along two dimensions; declare one of them only."
                )
        self.axes.append(Axis(dim, role, size))
        self.axes.sort(key=lambda axis: axis.role)  # the one that reads comes last
        return self.axis(dim, role, size)

    @property
    def groups(self) -> list[str]:
        """The groups whose gates the parameter needs."""
        return list(dict.fromkeys(group for axis in self.axes for group in axis.groups))

    @property
    def weight(self) -> Tensor:
        """The parameter, or the buffer, as it is without gates."""
        module, name = self.homes[0]
        weight = module._parameters.get(name, module._buffers.get(name))
        if weight is None:
            raise GateError(
                f"'{self.name}' is no parameter of the model any more: a parametrization or a mask "
                "has taken its place. Call detach_(model), remove that, and attach gates again."
            )
        return weight

    @property
    def scaled(self) -> list[Axis]:
        """The axes along which gates scale; the norm of its rows scales those under weight norm."""
        return [a for a in self.axes if self.lengths is None or a.dim != self.norm_dim]

    def gated(self, values: dict[str, Tensor]) -> Tensor:
        """Return the parameter multiplied by the gates, in the type that layers compute in."""
        *before, last = self.scaled
        weight = self.weight
        for axis in before:
            weight = weight * along(axis.factors(values).to(weight.dtype), weight, axis.dim)
        return scale(weight, last.factors(values), last.dim, self.scratch)

    def parts(self, values: dict[str, Tensor]) -> Iterator[tuple["Reader", Tensor]]:
        """Yield what is gated, with its values: the parameter, and its lengths if it has them."""
        if self.lengths is None:
            yield self, self.gated(values)
            return
        lengths = self.lengths.gated(values) if self.lengths.axes else self.lengths.weight
        if self.scaled:
            before = norm_except(self.weight, self.norm_dim)
            gated, lengths = with_lengths(self.gated(values), lengths, before, self.norm_dim)
            yield self, gated
        yield self.lengths, lengths

    @property
    def all_homes(self) -> list[tuple[nn.Module, str]]:
        """The places of the parameter and of its lengths."""
        return self.homes + (self.lengths.homes if self.lengths else [])


def find_readers(model: nn.Module, plan: Plan, placement: Placement = "readers") -> list[Reader]:
    """Return every parameter that has to be gated, tied ones once with all their homes."""
    tensors = named_tensors(model)
    readers: dict[int, Reader] = {}
    for group in plan.groups:
        for s in group.slices:
            if s.role == "produce" and placement == "readers":
                continue
            tensor = tensors[s.parameter]
            if s.role == "produce" and not _is_recurrent_matrix(model, s.parameter, tensor):
                continue
            reader = readers.setdefault(id(tensor), Reader(s.parameter))
            dim = s.dim % tensor.dim()
            reader.axis(dim, s.role, tensor.shape[dim]).add(s, group.name, plan)
    for norm in norms_of(model):
        source, lengths = id(tensors[norm.source]), id(tensors[norm.lengths])
        if source in readers:
            readers[source].lengths = readers.pop(lengths, Reader(norm.lengths))
            readers[source].norm_dim = norm.dim
    whole = [part for reader in readers.values() for part in (reader, reader.lengths) if part]
    by_place = {id(tensors[part.name]): part for part in whole}
    for module in model.modules():
        for name, held in [*module._parameters.items(), *module._buffers.items()]:
            if id(held) in by_place:
                by_place[id(held)].homes.append((module, name))
    return list(readers.values())


def _is_recurrent_matrix(model: nn.Module, parameter: str, tensor: Tensor) -> bool:
    home = model.get_submodule(parameter.rpartition(".")[0])
    return tensor.dim() > 1 and is_recurrent(home)
