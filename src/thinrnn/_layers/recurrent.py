"""Recurrent layers: `nn.LSTM`, `nn.GRU`, `nn.RNN` and their cells."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from thinrnn._layers.base import Edit, Intake, Layer, argument

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
        self.add("input", self.matrix("ih").shape[1], *firsts)  # type: ignore[arg-type]
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

    def matrix(self, kind: str) -> Tensor:
        """Return a matrix of the first layer: "ih" or "hh"."""
        parameter = self.module._parameters[f"weight_{kind}_l0"]
        assert parameter is not None
        return parameter

    @property
    def tops(self) -> list[str]:
        """The spaces side by side in the output: those of the last layer."""
        return self.parts[-(1 + self.module.bidirectional) :]

    @property
    def state_spaces(self) -> list[list[str]]:
        if self.module.mode != "LSTM":
            return [self.parts]
        projected = self.module.proj_size > 0
        return [self.parts, [f"{p}_cell" if projected else p for p in self.parts]]

    def states(self, hx: Any) -> list[tuple[list[str], Any]]:
        """Return hidden (and cell) states with the spaces of their entries."""
        return list(zip(self.state_spaces, hx if self.module.mode == "LSTM" else [hx], strict=True))

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
        values = out.data if isinstance(out, PackedSequence) else out
        pieces = values.split([self.spaces[top].size for top in self.tops], -1)
        values = torch.cat([change(s, v) for s, v in zip(self.tops, pieces, strict=True)], -1)
        if isinstance(out, PackedSequence):
            values = PackedSequence(values, *out[1:])
        states = tuple(
            _stacked([change(s, v) for s, v in zip(spaces, state, strict=True)])
            for spaces, state in self.states(hx)
        )
        return values, states if len(states) > 1 else states[0]

    def resize(self) -> None:
        rnn = self.module
        rnn.input_size = self.matrix("ih").shape[1]
        rnn.hidden_size = self.matrix("hh").shape[0] // GATES[rnn.mode]
        if rnn.proj_size > 0:
            rnn.proj_size = self.matrix("hh").shape[1]
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

    @property
    def state_spaces(self) -> list[list[str]]:
        return [["output"]] * (2 if isinstance(self.module, nn.LSTMCell) else 1)

    def intakes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Intake]:
        yield from super().intakes(args, kwargs)
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


def _stacked(states: list[Tensor]) -> Any:
    return torch.stack(states) if len({s.shape for s in states}) == 1 else states
