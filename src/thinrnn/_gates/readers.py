"""The parameters that are gated: which gate belongs to which of their positions.

placement="readers"   U * s along the columns that read the neurons
placement="both"      W * (z s^T), U * (s s^T): also along the rows of recurrent matrices that
                      produce them, as in the paper
"""

from typing import Literal

import torch
from torch import Tensor, nn

from thinrnn._gates.scaled_weight import Scratch, along, scale
from thinrnn._layers.registry import is_recurrent
from thinrnn.errors import GateError, PlanError
from thinrnn.plan import Plan, Role, Slice, named_tensors

Placement = Literal["readers", "both"]


class Axis:
    """One dimension of a gated parameter, and the gate of each position along it."""

    def __init__(self, dim: int, role: Role, size: int) -> None:
        self.dim = dim
        self.role = role
        self.groups: list[str] = []
        self.index = torch.full((size,), -1)  # position -> entry of the groups' gates in a row
        self.is_plain = False  # position i simply belongs to gate i; known without the device

    def add(self, s: Slice, group: str, plan: Plan) -> None:
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

    def gated(self, values: dict[str, Tensor]) -> Tensor:
        """Return the parameter multiplied by the gates, in the type that layers compute in."""
        *before, last = self.axes
        weight = self.weight
        for axis in before:
            weight = weight * along(axis.factors(values).to(weight.dtype), weight, axis.dim)
        return scale(weight, last.factors(values), last.dim, self.scratch)


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
    for module in model.modules():
        for name, held in [*module._parameters.items(), *module._buffers.items()]:
            if id(held) in readers:
                readers[id(held)].homes.append((module, name))
    return list(readers.values())


def _is_recurrent_matrix(model: nn.Module, parameter: str, tensor: Tensor) -> bool:
    home = model.get_submodule(parameter.rpartition(".")[0])
    return tensor.dim() > 1 and is_recurrent(home)
