"""One layer and one direction of a recurrent network, as a module and as a call.

Torch's modules take longer to prepare a call than a small layer takes to run: they look for
changed weights, check shapes and make states. `run_cell` calls torch's function directly where
nothing can be hidden in the module: no hook, no replaced forward, no other weights.
"""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
CLASSES: dict[str, Callable[..., nn.RNNBase]] = {
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "RNN_TANH": partial(nn.RNN, nonlinearity="tanh"),
    "RNN_RELU": partial(nn.RNN, nonlinearity="relu"),
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "LSTM": torch.lstm,
    "GRU": torch.gru,
    "RNN_TANH": torch.rnn_tanh,
    "RNN_RELU": torch.rnn_relu,
}
_PLAIN = (nn.LSTM, nn.GRU, nn.RNN)


def run_cell(
    cell: nn.RNNBase, x: Tensor, batch_sizes: Tensor | None, state: Any
) -> tuple[Tensor, Any]:
    """Return the output of a cell and its final h or (h, c), each (1, batch, size).

    `x` is padded, or the data of a packed sequence with these batch sizes; `state` is None for
    zeros.
    """
    weights = _plain_weights(cell, x)
    if weights is None:
        result, last = cell(x if batch_sizes is None else PackedSequence(x, batch_sizes), state)
        return (result if batch_sizes is None else result.data), last
    if state is None:
        state = _zeros(cell, x, batch_sizes)
    if _is_one_step_on_cpu(cell, x, batch_sizes):
        h, c = torch.lstm_cell(x.flatten(0, 1), [part.squeeze(0) for part in state], *weights)
        return h.reshape(*x.shape[:2], -1), (h.unsqueeze(0), c.unsqueeze(0))
    options = (cell.bias, 1, 0.0, cell.training, False)  # one layer, no dropout, one direction
    if batch_sizes is None:
        found = _FUNCTIONS[cell.mode](x, state, weights, *options, cell.batch_first)
    else:
        found = _FUNCTIONS[cell.mode](x, batch_sizes, state, weights, *options)
    return found[0], found[1:] if cell.mode == "LSTM" else found[1]


def _plain_weights(cell: nn.RNNBase, x: Tensor) -> list[Tensor] | None:
    """Return a cell's weights, or None unless calling torch's function is what the module does."""
    own = vars(cell)
    if (
        not (
            type(cell) in _PLAIN
            or (type(cell) is ProjectedLSTM and cell.proj_size < cell.hidden_size)
        )
        or "forward" in own
        or own["_forward_pre_hooks"]
        or own["_forward_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
        or x.size(-1) != cell.input_size
    ):
        return None
    flat: list[Any] = own["_flat_weights"]
    parameters = own["_parameters"]
    if x.dtype != flat[0].dtype or len(flat) != len(parameters):
        return None
    same = all(one is other for one, other in zip(flat, parameters.values(), strict=True))
    return flat if same else None


def _is_one_step_on_cpu(cell: nn.RNNBase, x: Tensor, batch_sizes: Tensor | None) -> bool:
    """Return whether a step alone is several times faster: oneDNN packs an LSTM's weights anew."""
    return (
        type(cell) is nn.LSTM
        and not cell.proj_size  # torch's cell has no projection
        and batch_sizes is None
        and x.size(1 if cell.batch_first else 0) == 1
        and x.device.type == "cpu"
    )


def _zeros(cell: nn.RNNBase, x: Tensor, batch_sizes: Tensor | None) -> Any:
    batch = x.size(0 if cell.batch_first else 1) if batch_sizes is None else int(batch_sizes[0])
    h = x.new_zeros(1, batch, cell.proj_size or cell.hidden_size)
    if cell.mode != "LSTM":
        return h
    return h, x.new_zeros(1, batch, cell.hidden_size) if cell.proj_size else h


class ProjectedLSTM(nn.LSTM):
    """An `nn.LSTM` whose projection may also be as wide as the cell or wider, as after pruning."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        if self.proj_size < self.hidden_size:
            return super().forward(input, hx)
        # Torch recognizes a projection by h and c having different sizes, and cuDNN needs h to be
        # the smaller one. So idle cells are added: with weights of zero their c stays zero, and
        # the projection does not read them. On a copy, since other threads may run this module.
        cells, idle = self.hidden_size, self.proj_size + 1 - self.hidden_size
        wide = copy.copy(self)  # which also brings _flat_weights up to date
        wide._flat_weight_refs = self._flat_weight_refs
        names, weights = self._flat_weights_names, self._flat_weights
        wide._flat_weights = [
            F.pad(weight, (0, idle)) if "weight_hr" in name else _pad_rows(weight, cells, idle)
            for name, weight in zip(names, weights, strict=True)
            if weight is not None
        ]
        wide.hidden_size = cells + idle
        if hx is not None:
            hx = (hx[0], F.pad(hx[1], (0, idle)))
        output, (h_n, c_n) = nn.LSTM.forward(wide, input, hx)
        return output, (h_n, c_n[..., :cells])

    def flatten_parameters(self) -> None:
        if self.proj_size < self.hidden_size:
            super().flatten_parameters()


def _pad_rows(weight: Tensor, cells: int, idle: int) -> Tensor:
    gates = weight.view(-1, cells, *weight.shape[1:])  # (4, n, m) or (4, n)
    return F.pad(gates, (0, 0) * (gates.dim() - 2) + (0, idle)).flatten(0, 1)


def make_cell(
    mode: str, parameters: Mapping[str, nn.Parameter], *, batch_first: bool
) -> nn.RNNBase:
    """Return a module of one layer and one direction around these parameters ("weight_ih_l0")."""
    projected = "weight_hr_l0" in parameters
    # On the meta device nothing is allocated or drawn at random. Sizes follow from the parameters,
    # also where torch's constructor would refuse them.
    options: dict[str, Any] = {
        "bias": "bias_ih_l0" in parameters,
        "batch_first": batch_first,
        "device": "meta",
    }
    cell = (
        ProjectedLSTM(1, 2, proj_size=1, **options) if projected else CLASSES[mode](1, 1, **options)
    )
    for name, parameter in parameters.items():
        setattr(cell, name, parameter)
    rows, cell.input_size = parameters["weight_ih_l0"].shape
    cell.hidden_size = rows // GATES[mode]
    cell.proj_size = parameters["weight_hr_l0"].shape[0] if projected else 0
    cell._init_flat_weights()
    return cell
