"""A recurrent network whose layers and directions may have unequal sizes.

    input ─┬─ l0 ─────────┬─ cat, dropout ─┬─ l1 ─────────┬─ cat ── output
           └─ l0_reverse ─┘                └─ l1_reverse ─┘

Every box is a plain nn.LSTM, nn.GRU or nn.RNN of one layer and one direction, and one call of
torch's function. Torch's own RNN of several layers takes about as long (`benchmarks/stacks.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from thinrnn.errors import StateError, ThinRNNError
from thinrnn.nn.rnn_cell import CLASSES, make_cell, run_cell
from thinrnn.nn.scripted_stack import ScriptedLSTM, ScriptedRNN
from thinrnn.nn.states import describe, join, split

_KINDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
# Runs a cell on x from a state, backward or not; returns its output and final state.
RunCell = Callable[[nn.RNNBase, Tensor, Any, bool], tuple[Tensor, Any]]


class RNNStack(nn.Module):
    """An `nn.LSTM`, `nn.GRU` or `nn.RNN` whose layers and directions may have unequal sizes.

    `compact` and `shrink_` put it in the place of a pruned RNN. It is called like one,
    `output, h_n = stack(input, hx)`: padded, unbatched or packed input, with or without states.
    Where all sizes agree a state is one tensor (layers * directions, batch, size), as in torch.
    Where they differ it is a `States`, a list of one tensor (batch, size) per layer and direction;
    h and c of an LSTM are decided separately. As input, either form is accepted, and any list or
    tuple of tensors. Under `torch.jit.script` a state is always a list (a pair of lists for an
    LSTM), and input is a tensor.

    Args:
        cells: modules of one layer and one direction, called "l0", "l1", ... and, for two
            directions, also "l0_reverse", "l1_reverse", ...
        batch_first: as in torch, and the same in all cells.
        dropout: as in torch: on the output of every layer but the last, in training only.

    Raises:
        ThinRNNError: if the names, kinds or sizes of the cells do not fit together.
        StateError: when called with states that do not fit.

    >>> cells = {"l0": nn.GRU(10, 4), "l0_reverse": nn.GRU(10, 3), "l1": nn.GRU(7, 5),
    ...          "l1_reverse": nn.GRU(7, 2)}
    >>> stack = RNNStack(cells, batch_first=False, dropout=0.0)
    >>> output, h_n = stack(torch.zeros(6, 1, 10))
    >>> output.shape, [tuple(h.shape) for h in h_n]
    (torch.Size([6, 1, 7]), [(1, 4), (1, 3), (1, 5), (1, 2)])
    """

    def __init__(self, cells: Mapping[str, nn.RNNBase], *, batch_first: bool, dropout: float):
        super().__init__()
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = "l0_reverse" in cells
        self.num_layers = len(cells) // (2 if self.bidirectional else 1)
        names = list(_cell_names(self.num_layers, self.bidirectional))
        if not names or set(names) != set(cells):
            raise ThinRNNError(
                f"RNNStack: got cells called {', '.join(cells) or 'nothing'}; call them "
                "l0, l1, ... and, for two directions, also l0_reverse, l1_reverse, ..."
            )
        self._names = tuple(names)
        for name in names:
            self.add_module(name, cells[name])
        self._check_cells()

    @classmethod
    def from_rnn(cls, rnn: nn.RNNBase) -> "RNNStack":
        """Return the stack that computes what `rnn` does, with the very same Parameters."""
        parameters: dict[str, dict[str, nn.Parameter]] = {}
        for old, new in cls.parameter_names(rnn).items():
            cell, name = new.split(".")
            parameters.setdefault(cell, {})[name] = getattr(rnn, old)
        cells = {
            name: make_cell(rnn.mode, own, batch_first=rnn.batch_first)
            for name, own in parameters.items()
        }
        return cls(cells, batch_first=rnn.batch_first, dropout=rnn.dropout).train(rnn.training)

    def to_rnn(self) -> nn.RNNBase | None:
        """Return torch's own RNN with the same Parameters, or None if torch has none like this."""
        hidden, projection = self.hidden_size, self.proj_size
        if isinstance(hidden, tuple) or isinstance(projection, tuple) or 0 < hidden <= projection:
            return None
        options: dict[str, Any] = {"proj_size": projection} if projection else {}
        rnn = CLASSES[self.mode](
            *(self.input_size, hidden, self.num_layers),
            bias=self.bias,
            batch_first=self.batch_first,
            bidirectional=self.bidirectional,
            device="meta",  # every parameter is replaced at once
            **options,
        )
        rnn.dropout = self.dropout
        for old, new in self.parameter_names(rnn).items():
            cell, name = new.split(".")
            setattr(rnn, old, getattr(self.cells[cell], name))
        rnn._init_flat_weights()
        return rnn.train(self.training)

    @staticmethod
    def parameter_names(rnn: nn.RNNBase) -> dict[str, str]:
        """Return where each parameter of `rnn` is in a stack: "bias_ih_l1" -> "l1.bias_ih_l0"."""
        return {
            f"{kind}_{cell}": f"{cell}.{kind}_l0"
            for cell in _cell_names(rnn.num_layers, rnn.bidirectional)
            for kind in _KINDS
            if hasattr(rnn, f"{kind}_{cell}")
        }

    @property
    def cells(self) -> dict[str, nn.RNNBase]:
        """The modules inside, by name, in the order of the states."""
        modules: Any = self._modules
        return {name: modules[name] for name in self._names}

    # Sizes are read from the cells each time: cells may be made smaller where they are.

    @property
    def mode(self) -> str:
        return self.cells["l0"].mode

    @property
    def bias(self) -> bool:
        return all(cell.bias for cell in self.cells.values())

    @property
    def input_size(self) -> int:
        return self.cells["l0"].input_size

    @property
    def hidden_size(self) -> int | tuple[int, ...]:
        """The number of hidden neurons, or a tuple of one number per layer and direction."""
        return _one_or_all([cell.hidden_size for cell in self.cells.values()])

    @property
    def proj_size(self) -> int | tuple[int, ...]:
        """The number of projected outputs (0: none), or one number per layer and direction."""
        return _one_or_all([cell.proj_size for cell in self.cells.values()])

    def flatten_parameters(self) -> None:
        """Lay out the weights of each cell in one block of memory, as cuDNN needs them."""
        for cell in self.cells.values():
            cell.flatten_parameters()

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.dim() not in (2, 3):
            raise ThinRNNError(
                f"RNNStack: input has shape {tuple(input.shape)}; give (time, features), "
                f"{'(batch, time, features)' if self.batch_first else '(time, batch, features)'} "
                "or a PackedSequence"
            )
        batch_dim, time_dim = (0, 1) if self.batch_first else (1, 0)
        batched = input.dim() == 3
        x = input if batched else input.unsqueeze(batch_dim)
        given = self._split_states(hx, (x.size(batch_dim),) if batched else ())

        def run(cell: nn.RNNBase, x: Tensor, state: Any, backward: bool) -> tuple[Tensor, Any]:
            output, last = run_cell(cell, x.flip(time_dim) if backward else x, None, state)
            return output.flip(time_dim) if backward else output, last

        output, final = self._run(x, given, run)
        if not batched:
            output, final = output.squeeze(batch_dim), each_state(final, lambda h: h.squeeze(0))
        return output, self._join_states(final)

    def _forward_packed(self, input: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        x, batch_sizes, order, back = input
        given = self._split_states(hx, (int(batch_sizes[0]),))
        if order is not None and hx is not None:
            given = each_state(given, lambda h: h.index_select(1, order))
        mirror = reversed_index(batch_sizes).to(x.device) if self.bidirectional else batch_sizes

        def run(cell: nn.RNNBase, x: Tensor, state: Any, backward: bool) -> tuple[Tensor, Any]:
            x = x.index_select(0, mirror) if backward else x
            output, last = run_cell(cell, x, batch_sizes, state)
            return output.index_select(0, mirror) if backward else output, last

        output, final = self._run(x, given, run)
        if back is not None:
            final = each_state(final, lambda h: h.index_select(0, back))
        return PackedSequence(output, batch_sizes, order, back), self._join_states(final)

    def _run(self, x: Tensor, given: Sequence[Any], run: RunCell) -> tuple[Tensor, list[Any]]:
        """Return the output and, per cell, its final h or (h, c), each (batch, size)."""
        final: list[Any] = []
        outputs: list[Tensor] = []
        for (name, cell), state in zip(self.cells.items(), given, strict=True):
            backward = name.endswith("_reverse")
            if not backward and outputs:
                x, outputs = _cat(outputs), []
                if self.dropout and self.training:
                    x = F.dropout(x, self.dropout)
            output, last = run(cell, x, state, backward)
            outputs.append(output)
            final.append(last)
        return _cat(outputs), each_state(final, lambda h: h.squeeze(0))

    def _split_states(self, hx: Any, batch: tuple[int, ...]) -> list[Any]:
        """Return per cell the state to start from, each tensor (1, batch, size), or None."""
        cells = self.cells.values()
        if hx is None:
            return [None] * len(cells)
        h_sizes = [cell.proj_size or cell.hidden_size for cell in cells]
        c_sizes = [cell.hidden_size for cell in cells]
        if self.mode != "LSTM":
            return split("h_0", hx, h_sizes, batch)
        if not isinstance(hx, tuple | list) or len(hx) != 2:
            raise StateError(
                f"RNNStack: the state of an LSTM is a pair (h_0, c_0); got {describe(hx)}"
            )
        h_0, c_0 = split("h_0", hx[0], h_sizes, batch), split("c_0", hx[1], c_sizes, batch)
        return list(zip(h_0, c_0, strict=True))

    def _join_states(self, final: list[Any]) -> Any:
        if self.mode != "LSTM":
            return join(final)
        return tuple(join(list(states)) for states in zip(*final, strict=True))

    def __prepare_scriptable__(self) -> nn.Module:
        """Return what torch.jit.script puts in the place of this module."""
        return ScriptedLSTM(self) if self.mode == "LSTM" else ScriptedRNN(self)

    def _check_cells(self) -> None:
        width = self.input_size
        cells = self.cells
        for layer in range(self.num_layers):
            names = [name for name in (f"l{layer}", f"l{layer}_reverse") if name in cells]
            for name in names:
                cell, problem = cells[name], ""
                if (cell.num_layers, cell.bidirectional) != (1, False):
                    problem = f"must be of one layer and one direction, got {cell}"
                elif (cell.mode, cell.batch_first) != (self.mode, self.batch_first):
                    problem = (
                        f"is a {cell.mode} with batch_first={cell.batch_first}; make it a "
                        f"{self.mode} with batch_first={self.batch_first} like the rest"
                    )
                elif cell.input_size != width:
                    before = "the layer before" if layer else "l0"
                    problem = (
                        f"reads {cell.input_size} features, but {before} has {width}; "
                        f"build {name} with input_size={width}"
                    )
                if problem:
                    raise ThinRNNError(f"RNNStack: {name} {problem}.")
            width = sum(cells[name].proj_size or cells[name].hidden_size for name in names)

    def extra_repr(self) -> str:
        sizes = ""
        for name, cell in self.cells.items():
            sizes += "+" if name.endswith("_reverse") else " | " if sizes else ""
            sizes += f"{cell.hidden_size}" + (f" proj {cell.proj_size}" if cell.proj_size else "")
        options = f", batch_first={self.batch_first}" if self.batch_first else ""
        options += f", dropout={self.dropout}" if self.dropout else ""
        return f"{self.mode}({self.input_size} -> {sizes}){options}"


def _cell_names(num_layers: int, bidirectional: bool) -> Iterator[str]:
    for layer in range(num_layers):
        yield f"l{layer}"
        if bidirectional:
            yield f"l{layer}_reverse"


def _one_or_all(sizes: list[int]) -> int | tuple[int, ...]:
    return sizes[0] if len(set(sizes)) == 1 else tuple(sizes)


def _cat(outputs: list[Tensor]) -> Tensor:
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)


def each_state(states: list[Any], change: Callable[[Tensor], Tensor]) -> list[Any]:
    """Return the same states, each h or (h, c), with every tensor changed."""
    return [tuple(map(change, s)) if isinstance(s, tuple) else change(s) for s in states]


def reversed_index(batch_sizes: Tensor) -> Tensor:
    """Return where each row of packed data goes when each sequence is reversed in its length."""
    device = batch_sizes.device  # the CPU, whatever torch's default device is
    steps = torch.arange(len(batch_sizes), device=device)  # (T,)
    start = batch_sizes.cumsum(0) - batch_sizes  # (T,) the first row of each step
    sequences = torch.arange(int(batch_sizes[0]), device=device)  # (B,)
    length = (batch_sizes[:, None] > sequences).sum(0)  # (B,)
    time = steps.repeat_interleave(batch_sizes)  # (N,) of each row of the data
    sequence = torch.arange(len(time), device=device) - start[time]  # (N,)
    return start[length[sequence] - 1 - time] + sequence
