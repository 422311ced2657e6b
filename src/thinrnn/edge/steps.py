"""Recurrent layers written out step by step, since ExecuTorch and LiteRT have no such operators.

    x ── all steps at once ──> W_ih x + b ──┐ + W_hh h_t-1 ──> gates ──> h_t, c_t
                                  h_0, c_0 ─┘                             └─> next step

Every product is an `F.linear`, the operation that both runtimes also compute in 8 bits.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from thinrnn.errors import ExportError
from thinrnn.nn.rhn import RHN
from thinrnn.onnx._trace.calls import MODES, PACK, Call, Zeros, read_call
from thinrnn.onnx._trace.operators import Weights

State = tuple[Tensor, ...]  # h (B, P), and for an LSTM c (B, H)


class Steps(TorchFunctionMode):
    """Replaces torch's recurrent functions while a model is traced.

    With `states`, layers that would start from zeros start from these, each (1, B, size), in the
    order in which the layers are called; `last` then has where each of them ended.
    """

    def __init__(self, states: Sequence[Tensor] | None) -> None:
        super().__init__()
        self.last: list[Tensor] = []
        self._states: Iterator[Tensor] | None = None if states is None else iter(states)
        self._zeros = Zeros()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is PACK:
            raise ExportError("packed sequences have no fixed size: export with export_onnx.")
        if func in MODES:
            return self._run(read_call(func, args))
        result = func(*args, **(kwargs or {}))
        self._zeros.record(func, args, result)
        return result

    def run_rhn(self, rhn: RHN, input: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:
        """Run an RHN from the caller's state."""
        if self._states is None or hx is not None:
            return RHN.forward(rhn, input, hx)
        given = next(self._states)
        output, h_n = RHN.forward(rhn, input, given if input.dim() == 3 else given[:, 0])
        self.last.append(h_n.reshape(given.shape))
        return output, h_n

    def _run(self, call: Call) -> State:
        x = call.x.transpose(0, 1) if call.batch_first else call.x  # (T, B, I)
        streams = self._states is not None and self._zeros.include(call.hx)
        last: list[State] = []
        for directions in call.layers:
            outputs = []
            for place, weights in enumerate(directions):
                state = self._next(len(call.hx)) if streams else [h[len(last)] for h in call.hx]
                y, end = run_layer(call.mode, x.flip(0) if place else x, weights, state)
                outputs.append(y.flip(0) if place else y)
                last.append(end)
                if streams:
                    self.last += [part.unsqueeze(0) for part in end]
            x = torch.cat(outputs, -1) if len(outputs) > 1 else outputs[0]
        states = [torch.stack(parts) for parts in zip(*last, strict=True)]
        return (x.transpose(0, 1) if call.batch_first else x, *states)

    def _next(self, count: int) -> list[Tensor]:
        assert self._states is not None
        return [next(self._states)[0] for _ in range(count)]


def run_layer(mode: str, x: Tensor, w: Weights, state: Sequence[Tensor]) -> tuple[Tensor, State]:
    """Return the output (T, B, P) and the last state of one layer and direction."""
    step = {"LSTM": _lstm, "GRU": _gru}.get(mode, _tanh if mode == "RNN_TANH" else _relu)
    from_x = F.linear(x, w.ih, w.b_ih)  # (T, B, gates * H)
    now: State = tuple(state)
    outputs = []
    for from_x_t in from_x.unbind(0):
        now = step(from_x_t, now, w)
        outputs.append(now[0])
    return torch.stack(outputs), now


def _lstm(from_x: Tensor, state: State, w: Weights) -> State:
    h, c = state
    i, f, g, o = (from_x + F.linear(h, w.hh, w.b_hh)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    m = torch.sigmoid(o) * torch.tanh(c)
    return (m if w.hr is None else F.linear(m, w.hr)), c


def _gru(from_x: Tensor, state: State, w: Weights) -> State:
    (h,) = state
    r, z, n = from_x.chunk(3, -1)
    r_h, z_h, n_h = F.linear(h, w.hh, w.b_hh).chunk(3, -1)
    r, z = torch.sigmoid(r + r_h), torch.sigmoid(z + z_h)
    n = torch.tanh(n + r * n_h)
    return (n + z * (h - n),)


def _tanh(from_x: Tensor, state: State, w: Weights) -> State:
    return (torch.tanh(from_x + F.linear(state[0], w.hh, w.b_hh)),)


def _relu(from_x: Tensor, state: State, w: Weights) -> State:
    return (torch.relu(from_x + F.linear(state[0], w.hh, w.b_hh)),)
