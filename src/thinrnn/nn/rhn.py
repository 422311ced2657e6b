"""A recurrent highway network: one layer whose step is several small steps deep.

    x_t ── W ──┐
    s ─────── U_0, b_0 ── h, t ── s ── U_1, b_1 ── h, t ── s ── ... ── s = output_t
       └──── (h - s) * t + s ────┘  └──── (h - s) * t + s ────┘

Zilly et al., Recurrent Highway Networks, with the carry coupled to the transform: c = 1 - t.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from thinrnn.errors import StateError, ThinRNNError
from thinrnn.nn.states import describe

TRANSFORM_BIAS = -2.0  # at the start a step mostly carries its state on


class RHN(nn.Module):
    """A recurrent highway network, called like an `nn.RNN` of one layer.

    `output, h_n = rhn(input, hx)`: input is (time, batch, features), with `batch_first` (batch,
    time, features), or without a batch (time, features); hx and h_n are (1, batch, hidden_size).
    On a GPU it runs on fused kernels, elsewhere as the equations above. A packed sequence is
    refused.

    Args:
        input_size: features of the input.
        hidden_size: neurons of the state.
        depth: small steps in each time step; the first one reads the input.
        batch_first: as in torch.
        dropout: of the state wherever a matrix reads it, in training; one mask per sequence, for
            all steps and depths of a call.
        device: as in torch.
        dtype: as in torch.

    Raises:
        ThinRNNError: if sizes are below 1, or the input does not fit.
        StateError: if hx does not fit.

    >>> output, h_n = RHN(4, 6, depth=3)(torch.zeros(5, 2, 4))
    >>> output.shape, h_n.shape
    (torch.Size([5, 2, 6]), torch.Size([1, 2, 6]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        depth: int = 10,
        batch_first: bool = False,
        dropout: float = 0.0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if min(input_size, hidden_size, depth) < 1:
            raise ThinRNNError(
                f"RHN({input_size}, {hidden_size}, depth={depth}): sizes and depth are 1 or more."
            )
        if not 0 <= dropout <= 1:
            raise ThinRNNError(f"RHN: dropout is {dropout}, but must be from 0 to 1.")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.depth = depth
        self.batch_first = batch_first
        self.dropout = float(dropout)
        rows = 2 * hidden_size  # those of h, then those of t
        options: Any = {"device": device, "dtype": dtype}
        self.weight_ih = nn.Parameter(torch.empty(rows, input_size, **options))
        for d in range(depth):
            matrix = torch.empty(rows, hidden_size, **options)
            self.register_parameter(f"weight_hh_d{d}", nn.Parameter(matrix))
        for d in range(depth):
            self.register_parameter(f"bias_d{d}", nn.Parameter(torch.empty(rows, **options)))
        self.reset_parameters()

    def reset_parameters(self, bound: float | None = None) -> None:
        """Draw weights uniformly from [-bound, bound]; set biases of h to 0 and of t to -2.

        Args:
            bound: by default 1 / sqrt(hidden_size), as in `nn.RNN`.
        """
        bound = 1 / math.sqrt(self.hidden_size) if bound is None else bound
        for name, parameter in self.named_parameters(recurse=False):
            if name.startswith("weight"):
                nn.init.uniform_(parameter, -bound, bound)
            else:
                nn.init.zeros_(parameter)
                nn.init.constant_(parameter[self.hidden_size :], TRANSFORM_BIAS)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        self._check(input)
        is_batched = input.dim() == 3
        x = input if is_batched else input.unsqueeze(1)
        if self.batch_first and is_batched:
            x = x.transpose(0, 1)  # (T, B, m)
        if not len(x):
            raise ThinRNNError(f"RHN: the input is {describe(input)}, without a time step.")
        s = self._start(x, hx, is_batched)  # (B, n)
        mask = None
        if self.training and self.dropout:
            mask = F.dropout(torch.ones_like(s), self.dropout)
        W, U, b = self.weight_ih, self._each("weight_hh"), self._each("bias")
        if x.is_cuda:
            from thinrnn.nn._rhn import fused as rhn_fused

            output = rhn_fused.highway(x, s, W, U, b, mask)
        else:
            output = highway(x, s, W, U, b, mask)
        h_n = output[-1:].clone()  # the caller may write into it
        if not is_batched:
            return output.squeeze(1), h_n.squeeze(1)
        return output.transpose(0, 1) if self.batch_first else output, h_n

    def _check(self, input: Any) -> None:
        """Raise unless the input is a tensor of the right shape, with a message that helps."""
        layout = "(batch, time, features)" if self.batch_first else "(time, batch, features)"
        features, weights = self.weight_ih.shape[1], self.weight_ih.dtype
        if isinstance(input, PackedSequence):
            problem = f"a PackedSequence; give a padded one, {layout}, as pad_packed_sequence does."
        elif not isinstance(input, Tensor) or input.dim() not in (2, 3):
            problem = f"{describe(input)}; give (time, features) or {layout}."
        elif input.shape[-1] != features:
            problem = f"{describe(input)}, but this layer reads {features} features."
        elif input.dtype != weights and not torch.is_autocast_enabled(input.device.type):
            problem = f"{input.dtype}, but the weights are {weights}: give input.to({weights})."
        else:
            return
        raise ThinRNNError(f"RHN: the input is {problem}")

    def _each(self, kind: str) -> list[Tensor]:
        """Return the matrices or biases of all depths, as attributes: gates may replace them."""
        return [getattr(self, f"{kind}_d{d}") for d in range(self.depth)]

    def _start(self, x: Tensor, hx: Tensor | None, is_batched: bool) -> Tensor:
        if hx is None:
            return x.new_zeros(x.size(1), self.hidden_size)
        wanted = (1, x.size(1), self.hidden_size) if is_batched else (1, self.hidden_size)
        if not isinstance(hx, Tensor) or tuple(hx.shape) != wanted:
            raise StateError(
                f"RHN: hx must be a tensor of shape {wanted}; got {describe(hx)}. Give the state "
                "that the module returned, or none to start from zeros."
            )
        return hx.reshape(x.size(1), self.hidden_size)

    def extra_repr(self) -> str:
        options = f", batch_first={self.batch_first}" if self.batch_first else ""
        options += f", dropout={self.dropout}" if self.dropout else ""
        return f"{self.input_size}, {self.hidden_size}, depth={self.depth}{options}"


def highway(
    x: Tensor,  # (T, B, m)
    s: Tensor,  # (B, n)
    W: Tensor,  # (2n, m)
    U: list[Tensor],  # (2n, n) each
    b: list[Tensor],  # (2n,) each
    mask: Tensor | None = None,  # (B, n)
) -> Tensor:
    """Return the states (T, B, n) after each time step, as the equations have them."""
    outputs = []
    from_x = F.linear(x, W)  # (T, B, 2n)
    for from_x_t in from_x:
        for d in range(len(U)):
            a = F.linear(s if mask is None else s * mask, U[d], b[d])  # (B, 2n)
            if d == 0:
                a = a + from_x_t
            h, t = a.chunk(2, -1)  # (B, n) each
            h, t = torch.tanh(h), torch.sigmoid(t)
            s = (h - s) * t + s
        outputs.append(s)
    return torch.stack(outputs)
