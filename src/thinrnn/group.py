"""A group of neurons that can go, and what each of them owns, as plain frozen data.

    Group "lstm.l0" (1500 neurons) ── Slice "lstm.weight_hh_l0", dim 0, produce
                                   ── Slice "lstm.weight_hh_l0", dim 1, read
                                   ── Slice "decoder.weight",    dim 1, read

A neuron is removed by removing its positions from every slice. A closed gate multiplies the
positions where the neuron is *read* by zero, so the outputs are those of a model without it.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

Role = Literal["produce", "read"]
Runs = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Slice:
    """The positions along one dimension of a parameter or buffer that a group's neurons own.

    Args:
        parameter: the name, as in `model.named_parameters()`.
        dim: the dimension; negative ones count from the last.
        role: "produce" where the neurons are computed (rows of a weight, a bias), "read" where
            their values are used (columns of a weight).
        runs: triples (first position, first neuron, length): position `first position + i`
            belongs to neuron `first neuron + i`.

    Examples:
        The rows of an LSTM's weight: four gates of eight neurons each.

        >>> rows = Slice("lstm.weight_ih_l0", 0, "produce", tuple((8 * g, 0, 8) for g in range(4)))
        >>> positions, neurons = rows.index()
        >>> positions[:3].tolist(), neurons[8:11].tolist()
        ([0, 1, 2], [0, 1, 2])
    """

    parameter: str
    dim: int
    role: Role
    runs: Runs

    @staticmethod
    def of(parameter: str, dim: int, role: Role, positions: Tensor, neurons: Tensor) -> "Slice":
        """Return the slice in which `positions[i]` belongs to `neurons[i]`."""
        return Slice(parameter, dim, role, runs_of(positions, neurons))

    def index(self) -> tuple[Tensor, Tensor]:
        """Return positions along the dimension and the neuron that owns each."""
        return _index(self.runs)


@dataclass(frozen=True)
class State:
    """A state that the model returns and takes back, or another result whose width may change.

    The small model returns it with the kept neurons only, and takes it with all of them or with
    the kept ones.

    Args:
        returned: where it is in the result, such as "state_out.h" or "1".
        argument: the argument that it comes back as, such as "batch.state_in.h"; empty if the
            example gives none.
        dim: the dimension with the neurons, counted from the last: -1 is the last.
        runs: as in `Slice`: position `first position + i` belongs to neuron `first neuron + i`.

    >>> positions, neurons = State("1", "hx", -1, ((0, 0, 3),)).index()
    >>> positions.tolist()
    [0, 1, 2]
    """

    returned: str
    argument: str
    dim: int
    runs: Runs

    @staticmethod
    def of(returned: str, argument: str, dim: int, positions: Tensor, neurons: Tensor) -> "State":
        """Return the state in which `positions[i]` belongs to `neurons[i]`."""
        return State(returned, argument, dim, runs_of(positions, neurons))

    def index(self) -> tuple[Tensor, Tensor]:
        """Return positions along the dimension and the neuron that owns each."""
        return _index(self.runs)


@dataclass(frozen=True)
class NormSlice:
    """The channels of a norm that a group's neurons own, where the plan goes through norms.

    The gated model takes the norm's mean and variance over open neurons alone, as the small model
    does, so cutting neurons changes what the others become there.

    Args:
        module: the norm's name in the model.
        runs: as in `Slice`: channel `first position + i` belongs to neuron `first neuron + i`.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GRUCell(4, 5))
    >>> plan = find_groups(model, torch.zeros(2, 3), through_norms=True)
    >>> plan["0+1"].norms
    (NormSlice(module='1', runs=((0, 0, 4),)),)
    """

    module: str
    runs: Runs

    @staticmethod
    def of(module: str, positions: Tensor, neurons: Tensor) -> "NormSlice":
        """Return the channels in which `positions[i]` belongs to `neurons[i]`."""
        return NormSlice(module, runs_of(positions, neurons))

    def index(self) -> tuple[Tensor, Tensor]:
        """Return channels and the neuron that owns each."""
        return _index(self.runs)


@dataclass(frozen=True)
class SizeAttribute:
    """A plain number of a module, such as `self.hidden_size`, that follows a group's size.

    The model's own code reads it, so it changes where the group is cut.

    Args:
        name: the attribute's name in the model, such as "decoder.hidden_size".
        times: how many times the group's size it is: 2 for both directions together.

    >>> SizeAttribute("decoder.hidden_size").value(of=16)
    16
    """

    name: str
    times: int = 1

    def value(self, of: int) -> int:
        """Return the attribute's value for a group of a size."""
        return self.times * of

    def home(self, model: nn.Module) -> tuple[nn.Module, str]:
        """Return the module that has the attribute, and its name there.

        Raises:
            AttributeError: the model has no such module.
        """
        path, _, name = self.name.rpartition(".")
        return model.get_submodule(path), name


@dataclass(frozen=True)
class Group:
    """Neurons that are kept or removed one by one, and everything they own.

    Each neuron gets one gate. A group with no "produce" slice is input selection: its neurons are
    features that come from outside the model.

    Args:
        name: the group's name in the plan, such as "lstm.l0"; joined by "+" where several layers
            share their neurons.
        size: the number of neurons.
        slices: where the neurons are produced and read.
        sets: numbers in the model's attributes that follow the group's size.
        states: entries of the result, and arguments, whose width follows the group's size.
        norms: norms that the neurons go through.

    >>> rows, columns = (Slice("fc.weight", dim, role, ((0, 0, 5),))
    ...                  for dim, role in enumerate(("produce", "read")))
    >>> Group("fc", 5, (rows, columns)).owners("read")
    ['fc']
    """

    name: str
    size: int
    slices: tuple[Slice, ...]
    sets: tuple[SizeAttribute, ...] = ()
    states: tuple[State, ...] = ()
    norms: tuple[NormSlice, ...] = ()

    @property
    def is_input(self) -> bool:
        """True when nothing inside the model produces these neurons."""
        return all(s.role == "read" for s in self.slices)

    def owners(self, role: Role) -> list[str]:
        """Return the modules whose parameters produce, or read, the neurons."""
        found = [s.parameter for s in self.slices if s.role == role]
        homes = (name.rpartition(".")[0] or name for name in found)
        return list(dict.fromkeys(home.partition(".parametrizations.")[0] for home in homes))


def runs_of(positions: Tensor, neurons: Tensor) -> Runs:
    """Return the runs in which `positions[i]` belongs to `neurons[i]`."""
    order = torch.argsort(positions)
    p, n = positions[order], neurons[order]
    breaks = (p.diff() != 1) | (n.diff() != 1)
    starts = torch.cat([torch.tensor([0]), breaks.nonzero().flatten() + 1])
    lengths = torch.cat([starts, torch.tensor([len(p)])]).diff()
    rows = torch.stack([p[starts], n[starts], lengths], 1).tolist()
    return tuple((a, b, c) for a, b, c in rows)


def _index(runs: Runs) -> tuple[Tensor, Tensor]:
    positions = [torch.arange(p, p + length) for p, _, length in runs]
    neurons = [torch.arange(n, n + length) for _, n, length in runs]
    return torch.cat(positions), torch.cat(neurons)
