"""The layers that thinrnn can cut, each told by one small class.

A *space* is a row of neurons that a module takes in or hands out, with the slots that each neuron
owns in the module's parameters. A class says which spaces a module has, where they appear in its
arguments and in its result, and how its attributes follow from the shapes of its parameters.
Everything else (coupling, gates, counting, cutting) works from that.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from thinrnn.plan import Role

Edit = Callable[[str, Tensor], Tensor]  # (space, values with channels last) -> new values


@dataclass(frozen=True)
class Slot:
    """Neuron j owns the positions `start + j` along `dim` of a module's parameter."""

    parameter: str
    dim: int
    starts: tuple[int, ...]
    role: Role


@dataclass(frozen=True)
class Space:
    """A row of neurons of one module."""

    name: str
    size: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class Intake:
    """What a call hands to one space; `values` has the neurons in its last dimension."""

    argument: str
    space: str
    values: Tensor


class Layer:
    """How one module takes in and hands out neurons."""

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name = name
        self.module = module
        self.spaces: dict[str, Space] = {}
        self.build()

    def build(self) -> None:
        """Fill `self.spaces`."""
        raise NotImplementedError

    def intakes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Intake]:
        """Yield what a call with these arguments hands to the module's spaces."""
        raise NotImplementedError

    def edit(self, result: Any, change: Edit) -> Any:
        """Return the module's result with `change` applied to each space in it."""
        raise NotImplementedError

    def resize(self) -> None:
        """Set the module's attributes to what the shapes of its parameters say."""
        raise NotImplementedError

    def add(self, name: str, size: int, *slots: tuple[str, int, tuple[int, ...], Role]) -> None:
        """Add a space; slots of parameters that the module does not have are left out."""
        present = (Slot(*slot) for slot in slots if self.has(slot[0]))
        self.spaces[name] = Space(name, size, tuple(present))

    def has(self, parameter: str) -> bool:
        tensor = self.module._parameters.get(parameter)
        return tensor is not None or self.module._buffers.get(parameter) is not None

    def label(self, space: str) -> str:
        """Return the name that a space has in a plan."""
        parts = [self.name, "" if space == "output" else space]
        return ".".join(part for part in parts if part) or "output"


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, *names: str) -> Any:
    """Return an argument given by position or by one of its names, else None."""
    if len(args) > place:
        return args[place]
    return next((kwargs[name] for name in names if name in kwargs), None)


class LinearLayer(Layer):
    module: nn.Linear

    def build(self) -> None:
        n, m = self.module.weight.shape
        self.add("input", m, ("weight", 1, (0,), "read"))
        self.add("output", n, ("weight", 0, (0,), "produce"), ("bias", 0, (0,), "produce"))

    def intakes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Intake]:
        yield Intake("input", "input", argument(args, kwargs, 0, "input"))

    def edit(self, result: Any, change: Edit) -> Any:
        return change("output", result)

    def resize(self) -> None:
        self.module.out_features, self.module.in_features = self.module.weight.shape


class ConvLayer(Layer):
    """Conv1d and Conv2d: channels stand before the 1 or 2 dimensions of space."""

    module: nn.Conv1d | nn.Conv2d

    @property
    def depthwise(self) -> bool:
        return self.module.groups > 1

    @property
    def axis(self) -> int:
        return 1 - self.module.weight.dim()

    def build(self) -> None:
        n, m = self.module.weight.shape[:2]
        if not self.depthwise:
            self.add("input", m, ("weight", 1, (0,), "read"))
        self.add("output", n, ("weight", 0, (0,), "produce"), ("bias", 0, (0,), "produce"))

    def intakes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Intake]:
        values = argument(args, kwargs, 0, "input").movedim(self.axis, -1)
        yield Intake("input", "output" if self.depthwise else "input", values)

    def edit(self, result: Any, change: Edit) -> Any:
        return change("output", result.movedim(self.axis, -1)).movedim(-1, self.axis)

    def resize(self) -> None:
        module = self.module
        module.out_channels = module.weight.shape[0]
        if self.depthwise:
            module.groups = module.out_channels
        module.in_channels = module.weight.shape[1] * module.groups


class EmbeddingLayer(Layer):
    module: nn.Embedding

    def build(self) -> None:
        self.add("output", self.module.weight.shape[1], ("weight", 1, (0,), "produce"))

    def intakes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Intake]:
        return iter(())

    def edit(self, result: Any, change: Edit) -> Any:
        return change("output", result)

    def resize(self) -> None:
        self.module.embedding_dim = self.module.weight.shape[1]


class ChannelwiseLayer(Layer):
    """BatchNorm, InstanceNorm, PReLU: what goes in as channel j comes out as channel j."""

    def build(self) -> None:
        names = ("weight", "bias", "running_mean", "running_var")
        size = next(t.shape[0] for n in names if (t := getattr(self.module, n, None)) is not None)
        self.add("output", size, *((n, 0, (0,), "produce") for n in names))

    def intakes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Intake]:
        yield Intake("input", "output", argument(args, kwargs, 0, "input").movedim(1, -1))

    def edit(self, result: Any, change: Edit) -> Any:
        return change("output", result.movedim(1, -1)).movedim(-1, 1)

    def resize(self) -> None:
        kept = next(iter([*self.module.parameters(), *self.module.buffers()])).shape[0]
        which = "num_parameters" if isinstance(self.module, nn.PReLU) else "num_features"
        setattr(self.module, which, kept)


GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class RNNLayer(Layer):
    """`nn.LSTM`, `nn.GRU`, `nn.RNN`: one space per layer and direction, inner reading included.

    With `proj_size` the outputs are "l0" (read by `weight_hh` and the next layer) and the cells
    behind them "l0_cell" (read by `weight_hr`).
    """

    module: nn.RNNBase

    def build(self) -> None:
        rnn = self.module
        k = GATES[rnn.mode]
        directions = ["", "_reverse"][: 1 + rnn.bidirectional]
        self.parts = [f"l{i}{d}" for i in range(rnn.num_layers) for d in directions]
        firsts = [(f"weight_ih_l0{d}", 1, (0,), "read") for d in directions]
        self.add("input", rnn.weight_ih_l0.shape[1], *firsts)  # type: ignore[arg-type]
        for i in range(rnn.num_layers):
            outputs = [getattr(rnn, f"weight_hh_l{i}{d}").shape[1] for d in directions]
            for j, d in enumerate(directions):
                n = getattr(rnn, f"weight_hh_l{i}{d}").shape[0] // k
                rows = tuple(g * n for g in range(k))
                cells = [
                    (f"{w}_l{i}{d}", 0, rows, "produce")
                    for w in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                ]
                before = sum(outputs[:j])
                readers = [(f"weight_hh_l{i}{d}", 1, (0,), "read")]
                readers += [(f"weight_ih_l{i + 1}{e}", 1, (before,), "read") for e in directions]
                if rnn.proj_size > 0:
                    projection = (f"weight_hr_l{i}{d}", 0, (0,), "produce")
                    self.add(f"l{i}{d}", outputs[j], projection, *readers)  # type: ignore[arg-type]
                    readers, name = [(f"weight_hr_l{i}{d}", 1, (0,), "read")], f"l{i}{d}_cell"
                else:
                    name = f"l{i}{d}"
                self.add(name, n, *cells, *readers)  # type: ignore[arg-type]

    def cell_space(self, part: str) -> str:
        """Return the space of the cell states of one layer and direction."""
        return f"{part}_cell" if self.module.proj_size > 0 else part

    def states(self, hx: Any) -> list[tuple[list[str], Any]]:
        """Return hidden (and cell) states with the spaces of their entries."""
        hidden = self.parts
        if self.module.mode != "LSTM":
            return [(hidden, hx)]
        return [(hidden, hx[0]), ([self.cell_space(p) for p in hidden], hx[1])]

    def intakes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Intake]:
        x = argument(args, kwargs, 0, "input")
        yield Intake("input", "input", x.data if isinstance(x, PackedSequence) else x)
        hx = argument(args, kwargs, 1, "hx")
        if hx is not None:
            for spaces, state in self.states(hx):
                for space, values in zip(spaces, state, strict=True):
                    yield Intake("state", space, values)

    def edit(self, result: Any, change: Edit) -> Any:
        out, hx = result
        tops = self.parts[-(1 + self.module.bidirectional) :]
        values = out.data if isinstance(out, PackedSequence) else out
        pieces = values.split([self.spaces[t].size for t in tops], -1)
        values = torch.cat([change(t, v) for t, v in zip(tops, pieces, strict=True)], -1)
        if isinstance(out, PackedSequence):
            out = PackedSequence(values, *out[1:])
        else:
            out = values
        states = [
            torch.stack([change(s, v) for s, v in zip(spaces, state, strict=True)])
            for spaces, state in self.states(hx)
        ]
        return out, tuple(states) if len(states) > 1 else states[0]

    def resize(self) -> None:
        rnn = self.module
        rnn.input_size = rnn.weight_ih_l0.shape[1]
        rnn.hidden_size = rnn.weight_hh_l0.shape[0] // GATES[rnn.mode]
        if rnn.proj_size > 0:
            rnn.proj_size = rnn.weight_hh_l0.shape[1]
        rnn._init_flat_weights()
        rnn.flatten_parameters()


class CellLayer(Layer):
    """`nn.LSTMCell`, `nn.GRUCell`, `nn.RNNCell` in a loop that somebody wrote."""

    module: nn.RNNCellBase

    def build(self) -> None:
        n = self.module.weight_hh.shape[1]
        k = self.module.weight_hh.shape[0] // n
        rows = tuple(g * n for g in range(k))
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        self.add("input", self.module.weight_ih.shape[1], ("weight_ih", 1, (0,), "read"))
        made = [(name, 0, rows, "produce") for name in names]
        self.add("output", n, *made, ("weight_hh", 1, (0,), "read"))  # type: ignore[arg-type]

    def intakes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Intake]:
        yield Intake("input", "input", argument(args, kwargs, 0, "input"))
        hx = argument(args, kwargs, 1, "hx")
        if hx is not None:
            for values in hx if isinstance(self.module, nn.LSTMCell) else (hx,):
                yield Intake("state", "output", values)

    def edit(self, result: Any, change: Edit) -> Any:
        if isinstance(self.module, nn.LSTMCell):
            return tuple(change("output", values) for values in result)
        return change("output", result)

    def resize(self) -> None:
        self.module.input_size = self.module.weight_ih.shape[1]
        self.module.hidden_size = self.module.weight_hh.shape[1]


LAYERS: dict[type[nn.Module], type[Layer]] = {
    nn.Linear: LinearLayer,
    nn.Conv1d: ConvLayer,
    nn.Conv2d: ConvLayer,
    nn.Embedding: EmbeddingLayer,
    nn.BatchNorm1d: ChannelwiseLayer,
    nn.BatchNorm2d: ChannelwiseLayer,
    nn.InstanceNorm1d: ChannelwiseLayer,
    nn.PReLU: ChannelwiseLayer,
    nn.LSTM: RNNLayer,
    nn.GRU: RNNLayer,
    nn.RNN: RNNLayer,
    nn.LSTMCell: CellLayer,
    nn.GRUCell: CellLayer,
    nn.RNNCell: CellLayer,
}
RECURRENT = (RNNLayer, CellLayer)


def layer_of(name: str, module: nn.Module) -> Layer | None:
    """Return how to cut a module, or None where it is not one of the known layers."""
    kind = next((cls for base, cls in LAYERS.items() if isinstance(module, base)), None)
    if kind is None or refusal_of(module):
        return None
    return kind(name, module)


def refusal_of(module: nn.Module) -> str:
    """Return why a module of a known type cannot be cut after all, or an empty text."""
    if nn.utils.parametrize.is_parametrized(module):
        return "its weights are parametrized; remove the parametrization first"
    if any(name.endswith(("_g", "_v")) for name in module._parameters):
        return "it uses weight normalisation; remove it first (torch.nn.utils.remove_weight_norm)"
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return "max_norm rescales whole rows, which mixes the neurons"
    if isinstance(module, nn.PReLU) and module.num_parameters == 1:
        return "one slope serves all neurons"
    norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.InstanceNorm1d)
    if isinstance(module, norms) and module.weight is None and module.running_mean is None:
        return "it has no tensor per channel"
    if isinstance(module, (nn.Conv1d, nn.Conv2d)) and module.groups > 1:
        if not module.groups == module.in_channels == module.out_channels:
            return "grouped convolutions other than depthwise ones tie whole blocks of channels"
    return ""
