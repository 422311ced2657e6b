"""Recurrent cells in hand-written loops, over the grid of their options."""

from dataclasses import dataclass
from typing import Any

import oracle as reference
import torch
from grids import read_gates
from hypothesis import strategies as st
from torch import Tensor, nn

from thinrnn.plan import Plan

KINDS = ("LSTM", "GRU", "tanh RNN", "relu RNN")


@dataclass(frozen=True)
class CellShape:
    kinds: tuple[str, ...]  # one per layer
    bias: bool
    inputs: int
    hidden: tuple[int, ...]
    steps: int
    batch: int
    state: str  # "none" until the cell makes its own, "zeros" made by the model's code, "given"
    read: str  # "outputs" at each step, "last"

    def model(self, seed: int = 0) -> "CellNet":
        torch.manual_seed(seed)
        return CellNet(self).double()

    def arguments(self, seed: int = 0) -> tuple[Tensor, list[Any] | None]:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        x = normal(self.batch, self.steps, self.inputs)
        if self.state != "given":
            return x, None
        return x, self.states(lambda size: normal(self.batch, size))

    def states(self, make: Any) -> list[Any]:
        pairs = zip(self.kinds, self.hidden, strict=True)
        return [(make(n), make(n)) if kind == "LSTM" else make(n) for kind, n in pairs]


class CellNet(nn.Module):
    def __init__(self, shape: CellShape) -> None:
        super().__init__()
        self.shape = shape
        sizes = [shape.inputs, *shape.hidden]
        layers = zip(shape.kinds, sizes[:-1], sizes[1:], strict=True)
        self.cells = nn.ModuleList(_cell(kind, m, n, shape.bias) for kind, m, n in layers)
        self.head = nn.Linear(sizes[-1], 3)

    def forward(self, x: Tensor, state: list[Any] | None = None) -> Any:
        states: list[Any] = list(state) if state is not None else [None] * len(self.cells)
        if self.shape.state == "zeros":
            states = self.shape.states(lambda n: x.new_zeros(x.size(0), n))
        outputs = []
        for x_t in x.unbind(1):
            for k, cell in enumerate(self.cells):
                states[k] = cell(x_t, states[k])
                x_t = states[k][0] if isinstance(cell, nn.LSTMCell) else states[k]
            outputs.append(x_t)
        features = torch.stack(outputs, 1) if self.shape.read == "outputs" else x_t
        result = self.head(features)
        return (result, states) if self.shape.state == "given" else result


def _cell(kind: str, inputs: int, hidden: int, bias: bool) -> nn.RNNCellBase:
    if kind == "LSTM":
        return nn.LSTMCell(inputs, hidden, bias)
    if kind == "GRU":
        return nn.GRUCell(inputs, hidden, bias)
    return nn.RNNCell(inputs, hidden, bias, nonlinearity=kind.split()[0])


@st.composite
def cell_shapes(draw: st.DrawFn) -> CellShape:
    kinds = tuple(draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3)))
    return CellShape(
        kinds=kinds,
        bias=draw(st.booleans()),
        inputs=draw(st.integers(1, 5)),
        hidden=tuple(draw(st.integers(2, 6)) for _ in kinds),
        steps=draw(st.integers(2, 4)),
        batch=draw(st.integers(1, 3)),
        state=draw(st.sampled_from(["none", "zeros", "given"])),
        read=draw(st.sampled_from(["outputs", "last"])),
    )


def cell_oracle(
    model: CellNet, plan: Plan, values: dict[str, Tensor], x: Tensor, state: list[Any] | None
) -> Tensor:
    """The output of the gated model, layer by layer from the slow reference."""
    x = x.transpose(0, 1)  # (T, B, m)
    for k, cell in enumerate(model.cells):
        assert isinstance(cell, nn.RNNCellBase)
        n = cell.hidden_size
        gates = {
            "z": read_gates(plan, values, f"cells.{k}.weight_ih", cell.input_size),
            "s": read_gates(plan, values, f"cells.{k}.weight_hh", n),
        }
        weights = (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
        zeros = x.new_zeros(x.size(1), n)
        start = (zeros, zeros) if isinstance(cell, nn.LSTMCell) else zeros
        if state is not None:
            start = state[k]
        if isinstance(cell, nn.LSTMCell):
            x, *_ = reference.lstm(x, *start, *weights, **gates)
        elif isinstance(cell, nn.GRUCell):
            x, *_ = reference.gru(x, start, *weights, **gates)
        else:
            kind = cell.nonlinearity
            x, *_ = reference.rnn(x, start, *weights, nonlinearity=kind, **gates)
    features = x.transpose(0, 1) if model.shape.read == "outputs" else x[-1]
    return model.head(features * read_gates(plan, values, "head.weight", features.size(-1)))
