"""What an RNNStack is made of: recurrent modules of one layer and one direction."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class ProjectedLSTM(nn.LSTM):
    """An nn.LSTM whose projection may also be as wide as the cell, or wider, as after pruning."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        if self.proj_size < self.hidden_size:
            return super().forward(input, hx)
        # Torch knows a projection by h and c being of different size, and cuDNN wants it to be
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
    gates = weight.unflatten(0, (-1, cells))  # (4, n, m) or (4, n)
    return F.pad(gates, (0, 0) * (gates.dim() - 2) + (0, idle)).flatten(0, 1)


def make_cell(
    mode: str, parameters: Mapping[str, nn.Parameter], *, batch_first: bool
) -> nn.RNNBase:
    """A module of one layer and one direction around these parameters ("weight_ih_l0", ...)."""
    projected = "weight_hr_l0" in parameters
    # On the meta device, so that nothing is allocated or drawn at random for parameters that are
    # replaced at once; the sizes follow from the parameters, also where torch would refuse them.
    options: dict[str, Any] = {
        "bias": "bias_ih_l0" in parameters,
        "batch_first": batch_first,
        "device": "meta",
    }
    cell: nn.RNNBase
    if projected:
        cell = ProjectedLSTM(1, 2, proj_size=1, **options)
    elif mode == "LSTM":
        cell = nn.LSTM(1, 1, **options)
    elif mode == "GRU":
        cell = nn.GRU(1, 1, **options)
    else:
        cell = nn.RNN(1, 1, nonlinearity=mode.removeprefix("RNN_").lower(), **options)
    for name, parameter in parameters.items():
        setattr(cell, name, parameter)
    rows, cell.input_size = parameters["weight_ih_l0"].shape
    cell.hidden_size = rows // _GATES[mode]
    cell.proj_size = parameters["weight_hr_l0"].shape[0] if projected else 0
    cell._init_flat_weights()
    return cell


def reversed_index(batch_sizes: Tensor) -> Tensor:
    """Where each row of packed data goes when every sequence is reversed in its own length."""
    device = batch_sizes.device  # the CPU, whatever torch's default device is
    steps = torch.arange(len(batch_sizes), device=device)  # (T,)
    start = batch_sizes.cumsum(0) - batch_sizes  # (T,) the first row of each step
    sequences = torch.arange(int(batch_sizes[0]), device=device)  # (B,)
    length = (batch_sizes[:, None] > sequences).sum(0)  # (B,)
    time = steps.repeat_interleave(batch_sizes)  # (N,) of each row of the data
    sequence = torch.arange(len(time), device=device) - start[time]  # (N,)
    return start[length[sequence] - 1 - time] + sequence
