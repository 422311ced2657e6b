"""Recurrent layers: `nn.LSTM`, `nn.GRU`, `nn.RNN`, their cells, and `thinrnn.RHN`."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from thinrnn._layers.base import Edit, Intake, Layer, argument
from thinrnn.nn.rhn import RHN
from thinrnn.nn.rnn_cell import GATES

MADE = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class RNNLayer(Layer):
    """`nn.LSTM`, `nn.GRU`, `nn.RNN`: one space per layer and direction, inner reading included.

    With `proj_size` the outputs are "l0" (read by `weight_hh` and the next layer) and the cells
    behind them "l0_cell" (read by `weight_hr`).
    """

    module: nn.RNNBase
    stacked = True

    def build(self) -> None:
        rnn = self.module
        k = GATES[rnn.mode]
        directions = ["", "_reverse"][: 1 + rnn.bidirectional]
        self.parts = [f"l{i}{d}" for i in range(rnn.num_layers) for d in directions]
        first = [f"weight_ih_l0{d}" for d in directions]
        self.add("input", self.matrix("ih").shape[1], *self.columns(*first))
        for i in range(rnn.num_layers):
            before = 0  # outputs of the layer's other direction
            for d in directions:
                part = f"l{i}{d}"
                rows, outputs = getattr(rnn, f"weight_hh_{part}").shape
                starts = range(0, rows, rows // k)
                cells = self.rows(*(f"{kind}_{part}" for kind in MADE), starts=starts)
                above = (f"weight_ih_l{i + 1}{e}" for e in directions)
                readers = self.columns(f"weight_hh_{part}") + self.columns(*above, start=before)
                if rnn.proj_size > 0:
                    self.add(part, outputs, *self.rows(f"weight_hr_{part}"), *readers)
                    readers, part = self.columns(f"weight_hr_{part}"), f"{part}_cell"
                self.add(part, rows // k, *cells, *readers)
                before += outputs

    def matrix(self, kind: str) -> Tensor:
        """Return a matrix of the first layer: "ih" or "hh"."""
        weight: Tensor = getattr(self.module, f"weight_{kind}_l0")
        return weight

    @property
    def state_spaces(self) -> list[list[str]]:
        if self.module.mode != "LSTM":
            return [self.parts]
        projected = self.module.proj_size > 0
        return [self.parts, [f"{p}_cell" if projected else p for p in self.parts]]

    def intakes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Intake]:
        x = argument(args, kwargs, 0, "input")
        values = x.data if isinstance(x, PackedSequence) else x
        yield from super().intakes((values, argument(args, kwargs, 1, "hx")), {})

    def edit(self, result: Any, change: Edit) -> Any:
        out, hx = result
        tops = self.parts[-(1 + self.module.bidirectional) :]  # side by side in the output
        values = out.data if isinstance(out, PackedSequence) else out
        pieces = values.split([self.spaces[top].size for top in tops], -1)
        values = torch.cat([change(s, v) for s, v in zip(tops, pieces, strict=True)], -1)
        if isinstance(out, PackedSequence):
            values = PackedSequence(values, *out[1:])
        states = tuple(
            _stacked([change(s, v) for s, v in zip(spaces, state, strict=True)])
            for spaces, state in self.states(hx)
        )
        return values, states if len(states) > 1 else states[0]

    def refusal(self) -> str:
        if self.computed and len(self.module._flat_weights_names) > 4 + 2 * self.module.bias:
            return (
                "weight norm or weight drop on several layers or directions of one module, whose "
                "sizes may differ in the small model; use one module for each layer, or remove it"
            )
        return ""

    def resize(self) -> None:
        rnn = self.module
        rnn.input_size = self.matrix("ih").shape[1]
        rnn.hidden_size = self.matrix("hh").shape[0] // GATES[rnn.mode]
        if rnn.proj_size > 0:
            rnn.proj_size = self.matrix("hh").shape[1]
        rnn._init_flat_weights()
        rnn.flatten_parameters()

    @property
    def matrices(self) -> list[str]:
        return [name for name in self.module._flat_weights_names if name.startswith("weight")]


class CellLayer(Layer):
    """`nn.LSTMCell`, `nn.GRUCell`, `nn.RNNCell`, called in a loop of the user's own."""

    module: nn.RNNCellBase
    matrices = ("weight_ih", "weight_hh")

    def build(self) -> None:
        rows, n = self.module.weight_hh.shape
        made = self.rows(*MADE, starts=range(0, rows, n))
        self.add("input", self.module.weight_ih.shape[1], *self.columns("weight_ih"))
        self.add("output", n, *made, *self.columns("weight_hh"))

    @property
    def state_spaces(self) -> list[list[str]]:
        return [["output"]] * (2 if isinstance(self.module, nn.LSTMCell) else 1)

    def edit(self, result: Any, change: Edit) -> Any:
        if isinstance(self.module, nn.LSTMCell):
            return tuple(change("output", values) for values in result)
        return change("output", result)

    def resize(self) -> None:
        self.module.input_size = self.module.weight_ih.shape[1]
        self.module.hidden_size = self.module.weight_hh.shape[1]


class RHNLayer(Layer):
    """`thinrnn.RHN`: every depth adds to the state it read, so all depths share one row of neurons.

    Neuron j owns row j of h and of t in every matrix, and column j of all that read the state.
    """

    module: RHN
    stacked = True

    def build(self) -> None:
        rows, m = self.module.weight_ih.shape
        depths = range(self.module.depth)
        made = ["weight_ih", *(f"{kind}_d{d}" for kind in ("weight_hh", "bias") for d in depths)]
        readers = self.columns(*(f"weight_hh_d{d}" for d in depths))
        self.add("input", m, *self.columns("weight_ih"))
        self.add("l0", rows // 2, *self.rows(*made, starts=(0, rows // 2)), *readers)

    @property
    def state_spaces(self) -> list[list[str]]:
        return [["l0"]]

    def edit(self, result: Any, change: Edit) -> Any:
        output, h_n = result
        return change("l0", output), change("l0", h_n)

    def resize(self) -> None:
        rows, self.module.input_size = self.module.weight_ih.shape
        self.module.hidden_size = rows // 2

    @property
    def matrices(self) -> list[str]:
        return ["weight_ih", *(f"weight_hh_d{d}" for d in range(self.module.depth))]


def has_computed_weights(rnn: nn.RNNBase) -> bool:
    """Whether something else computes weights of an RNN before each call."""
    return any(name not in rnn._parameters for name in rnn._flat_weights_names)


def _stacked(states: list[Tensor]) -> Any:
    return torch.stack(states) if len({s.shape for s in states}) == 1 else states
