"""Models over the whole grid of what thinrnn prunes, and gates for them, for tests of both."""

from dataclasses import dataclass, replace
from typing import Any

import oracle as reference
import torch
from hypothesis import settings
from hypothesis import strategies as st
from rnn_grid import KINDS
from torch import Tensor, nn
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
)

import thinrnn
from thinrnn.plan import Plan

# Finding a plan is what takes the time; these are for tests in which the grid matters less.
A_HALF = settings(max_examples=settings.default.max_examples // 2)
A_QUARTER = settings(max_examples=settings.default.max_examples // 4)
VOCABULARY, CLASSES, RAW = 7, 3, 3
LAYOUTS = ("padded", "packed", "packed unsorted", "packed by the caller", "unbatched")


@dataclass(frozen=True)
class Shape:
    """One point of the grid."""

    kind: str = "LSTM"
    layers: int = 2
    bidirectional: bool = False
    bias: bool = True
    batch_first: bool = False
    inputs: int = 5
    hidden: int = 4
    projected: int = 3
    layout: str = "padded"
    lengths: tuple[int, ...] = (3, 3)
    state: str = "none"  # or "zeros" made by the model's code, "optional" or "given" by the caller
    read: str = "outputs"  # or "last states", "last cells", "all states"
    front: str = "embedding"  # or "linear", "nothing": raw input
    reader: str = "linear"  # or "conv", "tied"

    @property
    def is_lstm(self) -> bool:
        return "LSTM" in self.kind

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def outputs(self) -> int:
        """How wide one layer's hidden state is."""
        return self.projected if self.kind == "projected LSTM" else self.hidden

    @property
    def width(self) -> int:
        """How many features the reader reads."""
        if self.read == "last cells":
            return self.hidden * self.directions
        return self.outputs * self.directions * (self.layers if self.read == "all states" else 1)

    @property
    def parts(self) -> list[str]:
        ends = ["", "_reverse"][: self.directions]
        return [f"l{k}{end}" for k in range(self.layers) for end in ends]

    @property
    def carries(self) -> bool:
        """Whether the model hands its state to the caller and takes it back."""
        return self.state in ("optional", "given")

    def model(self, seed: int = 0) -> "Net":
        torch.manual_seed(seed)
        return Net(self).double()

    def arguments(self, seed: int = 0, lengths: tuple[int, ...] | None = None) -> tuple[Any, ...]:
        """What the model is called with: (x, state, lengths)."""
        generator = torch.Generator().manual_seed(seed)
        lengths = lengths or self.lengths
        steps, batch = max(lengths), len(lengths)

        def values(*shape: int) -> Tensor:
            if self.front == "embedding":
                return torch.randint(VOCABULARY, shape, generator=generator)
            size = RAW if self.front == "linear" else self.inputs
            return torch.randn(*shape, size, generator=generator, dtype=torch.float64)

        x: Any
        if self.layout == "unbatched":
            x = values(steps)
        elif self.layout == "packed by the caller":
            x = pack_sequence([values(n) for n in lengths], enforce_sorted=False)
        else:
            x = values(*((batch, steps) if self.batch_first else (steps, batch)))
        if self.layout == "packed":
            lengths = tuple(sorted(lengths, reverse=True))
        given = torch.tensor(lengths) if self.layout in ("packed", "packed unsorted") else None
        state = self.some_state(generator, batch) if self.state == "given" else None
        return x, state, given

    def some_state(self, generator: torch.Generator, batch: int) -> Any:
        def normal(size: int) -> Tensor:
            rows = () if self.layout == "unbatched" else (batch,)
            shape = (len(self.parts), *rows, size)
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        return (normal(self.outputs), normal(self.hidden)) if self.is_lstm else normal(self.hidden)


class Net(nn.Module):
    """What a user might write around one recurrent module."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        inputs = shape.width if shape.reader == "tied" else shape.inputs
        self.front: nn.Module = nn.Identity()
        if shape.front == "embedding":
            self.front = nn.Embedding(VOCABULARY, inputs)
        elif shape.front == "linear":
            self.front = nn.Sequential(nn.Linear(RAW, inputs), nn.Sigmoid())
        self.rnn = _rnn(shape, inputs)
        self.head: nn.Module
        if shape.reader == "conv":
            self.head = nn.Conv1d(shape.width, CLASSES, 3, padding=1)
        elif shape.reader == "tied":
            self.head = nn.Linear(shape.width, VOCABULARY)
            self.head.weight = self.front.weight  # type: ignore[assignment]
        else:
            self.head = nn.Linear(shape.width, CLASSES)

    def forward(self, x: Any, state: Any = None, lengths: Tensor | None = None) -> Any:
        x = self.rnn_input(x, lengths)
        if self.shape.state == "zeros":
            state = self.zeros(x)
        output, last = self.rnn(x, state)
        result = self.decode(self.features(output, last))
        return (result, last) if self.shape.carries else result

    def rnn_input(self, x: Any, lengths: Tensor | None) -> Any:
        if isinstance(x, PackedSequence):
            return PackedSequence(self.front(x.data), *x[1:])
        x = self.front(x)
        if lengths is None:
            return x
        is_sorted = self.shape.layout == "packed"
        first = self.shape.batch_first
        return pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=is_sorted)

    def zeros(self, x: Any) -> Any:
        shape = self.shape
        batch = len(shape.lengths)
        rows = () if shape.layout == "unbatched" else (batch,)
        h = torch.zeros(len(shape.parts), *rows, shape.outputs, dtype=torch.float64)
        c = torch.zeros(len(shape.parts), *rows, shape.hidden, dtype=torch.float64)
        return (h, c) if shape.is_lstm else h

    def features(self, output: Any, last: Any) -> Tensor:
        """What the reader reads, features last."""
        shape = self.shape
        if shape.read == "outputs":
            if isinstance(output, PackedSequence):
                return pad_packed_sequence(output, batch_first=shape.batch_first)[0]
            return output
        h = last[0] if shape.is_lstm else last
        if shape.read == "all states":
            return torch.cat(list(h), -1)
        top = last[1] if shape.read == "last cells" else h
        return torch.cat([top[-2], top[-1]], -1) if shape.bidirectional else top[-1]

    def decode(self, features: Tensor) -> Tensor:
        if self.shape.reader != "conv":
            return self.head(features)
        if features.dim() == 2:
            return self.head(features.T).T
        if self.shape.batch_first:
            return self.head(features.transpose(1, 2)).transpose(1, 2)
        return self.head(features.permute(1, 2, 0)).permute(2, 0, 1)


def _rnn(shape: Shape, inputs: int) -> nn.RNNBase:
    options: dict[str, Any] = {
        "num_layers": shape.layers,
        "bidirectional": shape.bidirectional,
        "bias": shape.bias,
        "batch_first": shape.batch_first,
    }
    if shape.kind == "LSTM":
        return nn.LSTM(inputs, shape.hidden, **options)
    if shape.kind == "projected LSTM":
        return nn.LSTM(inputs, shape.hidden, proj_size=shape.projected, **options)
    if shape.kind == "GRU":
        return nn.GRU(inputs, shape.hidden, **options)
    return nn.RNN(inputs, shape.hidden, nonlinearity=shape.kind.split()[0], **options)


@st.composite
def shapes(draw: st.DrawFn, **fixed: Any) -> Shape:
    """Any point of the grid, except for what is fixed."""
    kind = draw(st.sampled_from(KINDS))
    hidden = draw(st.integers(2, 6))
    reads = ["outputs", "last states", "all states"] + ["last cells"] * ("LSTM" in kind)
    found = Shape(
        kind=kind,
        layers=draw(st.integers(1, 3)),
        bidirectional=draw(st.booleans()),
        bias=draw(st.booleans()),
        batch_first=draw(st.booleans()),
        inputs=draw(st.integers(1, 5)),
        hidden=hidden,
        projected=draw(st.integers(1, hidden - 1)),
        layout=draw(st.sampled_from(LAYOUTS)),
        lengths=tuple(draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))),
        state=draw(st.sampled_from(["none", "zeros", "optional", "given"])),
        read=draw(st.sampled_from(reads)),
        front=draw(st.sampled_from(["embedding", "linear", "nothing"])),
        reader=draw(st.sampled_from(["linear", "conv", "tied"])),
    )
    return possible(replace(found, **fixed))


def possible(shape: Shape) -> Shape:
    """The nearest shape that can be built."""
    if shape.layout == "unbatched":
        shape = replace(shape, lengths=shape.lengths[:1])
    elif shape.layout == "padded":
        shape = replace(shape, lengths=(shape.lengths[0],) * len(shape.lengths))
    if not shape.is_lstm and shape.read == "last cells":
        shape = replace(shape, read="last states")
    if shape.reader == "conv" and shape.read != "outputs":
        shape = replace(shape, reader="linear")
    if shape.reader == "tied" and shape.front != "embedding":
        shape = replace(shape, front="embedding")
    return shape


@dataclass(frozen=True)
class GateSetting:
    """How to set all gates of a model: shares of closed and of open ones, the rest is soft."""

    seed: int
    closed: float
    opened: float
    extreme: bool
    whole_group: bool  # one group is closed as a whole

    def apply(self, model: nn.Module) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        far = 1e4 if self.extreme else 9.0
        gates = thinrnn.gates(model)
        for gate in gates.values():
            u = torch.rand(gate.size, generator=generator, dtype=torch.float64)
            soft = torch.rand(gate.size, generator=generator, dtype=torch.float64) * 4.6 - 2.3
            value = torch.where(u < self.closed, -far, torch.where(u > 1 - self.opened, far, soft))
            gate.log_alpha = value
        if self.whole_group:
            place = int(torch.randint(len(gates), (), generator=generator))
            list(gates.values())[place].log_alpha = -far


def gate_settings() -> st.SearchStrategy[GateSetting]:
    shares = st.sampled_from([0.0, 0.2, 0.5, 0.8])
    return st.builds(
        GateSetting,
        seed=st.integers(0, 2**20),
        closed=shares,
        opened=st.sampled_from([0.0, 0.2]),
        extreme=st.booleans(),
        whole_group=st.sampled_from([False, False, False, True]),
    )


def gated_model(shape: Shape, seed: int = 0) -> tuple[Net, Plan]:
    """A model of that shape with gates on everything, in eval."""
    model = shape.model(seed)
    plan = thinrnn.find_groups(model, shape.arguments(seed))
    thinrnn.attach_(model, plan)
    return model.eval(), plan


def read_gates(plan: Plan, values: dict[str, Tensor], parameter: str, size: int) -> Tensor:
    """The gate of each column of a parameter, straight from the plan."""
    factors = torch.ones(size, dtype=torch.float64)
    for group in plan:
        for part in group.slices:
            if part.parameter == parameter and part.role == "read":
                positions, neurons = part.index()
                factors = factors.index_put((positions,), values[group.name][neurons])
    return factors


def oracle(model: Net, plan: Plan, values: dict[str, Tensor], arguments: Any) -> Any:
    """What the gated model returns, computed step by step with every reader's input gated.

    `model` has no gates; `values` are those of each group.
    """

    def read_by(parameter: str) -> Tensor:
        return read_gates(plan, values, parameter, model.get_parameter(parameter).shape[1])

    shape, (x, state, lengths) = model.shape, arguments
    gates = {"input": read_by("rnn.weight_ih_l0")}
    for part in shape.parts:
        gates[part] = read_by(f"rnn.weight_hh_{part}")
        if shape.kind == "projected LSTM":
            gates[f"{part}_cell"] = read_by(f"rnn.weight_hr_{part}")
    if shape.front == "linear":
        x = _times(x, read_by("front.0.weight"))
    x = model.rnn_input(x, lengths)
    if shape.reader == "tied":  # one tensor, so gates of the reader are on the looked up rows too
        x = _times(x, read_by("head.weight"))
    if shape.state == "zeros":
        state = model.zeros(x)
    output, last = reference.network(model.rnn, x, state, gates)
    result = model.decode(model.features(output, last) * read_by("head.weight"))
    return (result, last) if shape.carries else result


def _times(x: Any, factors: Tensor) -> Any:
    if isinstance(x, PackedSequence):
        return PackedSequence(x.data * factors, *x[1:])
    return x * factors
