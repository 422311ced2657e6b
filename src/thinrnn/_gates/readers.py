"""The parameters that read gated neurons: which gate belongs to which of their positions."""

import torch
from torch import Tensor, nn

from thinrnn._gates.scaled_weight import Scratch
from thinrnn.errors import GateError, PlanError
from thinrnn.plan import Plan, named_tensors


class Reader:
    """One parameter that reads neurons, and all the places where modules hold it."""

    def __init__(self, name: str, dim: int, size: int) -> None:
        self.name = name
        self.dim = dim
        self.groups: list[str] = []
        self.index = torch.full((size,), -1)  # position -> entry of the groups' gates in a row
        self.is_plain = False  # position i simply belongs to gate i; known without the device
        self.homes: list[tuple[nn.Module, str]] = []
        self.scratch = Scratch()

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

    def factors(self, values: dict[str, Tensor]) -> Tensor:
        """Return the gate of each position along the dimension; 1 where there is none."""
        rows = [values[group] for group in self.groups]
        row = rows[0] if len(rows) == 1 else torch.cat(rows)
        if self.is_plain:
            return row
        if self.index.device != row.device:
            self.index = self.index.to(row.device)
        return torch.where(self.index < 0, 1.0, row[self.index.clamp(min=0)]).to(row.dtype)


def find_readers(model: nn.Module, plan: Plan) -> list[Reader]:
    """Return every parameter that has to be gated, tied ones once with all their homes."""
    tensors = named_tensors(model)
    readers: dict[tuple[int, int], Reader] = {}
    for group in plan.groups:
        for s in group.slices:
            if s.role != "read":
                continue
            tensor = tensors[s.parameter]
            dim = s.dim % tensor.dim()
            key = (id(tensor), dim)
            reader = readers.setdefault(key, Reader(s.parameter, dim, tensor.shape[dim]))
            if group.name not in reader.groups:
                reader.groups.append(group.name)
            positions, neurons = s.index()
            before = sum(plan[g].size for g in reader.groups[: reader.groups.index(group.name)])
            reader.index[positions] = neurons + before
    for (place, _), reader in readers.items():
        gates = torch.arange(sum(plan[group].size for group in reader.groups))
        reader.is_plain = torch.equal(reader.index, gates)
        for module in model.modules():
            for name, held in [*module._parameters.items(), *module._buffers.items()]:
                if held is not None and id(held) == place:
                    reader.homes.append((module, name))
    places = [place for place, _ in readers]
    twice = [r.name for (place, _), r in readers.items() if places.count(place) > 1]
    if twice:
        raise PlanError(f"'{twice[0]}' is read along two dimensions; declare one of them only.")
    return list(readers.values())
