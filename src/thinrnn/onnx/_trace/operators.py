"""One recurrent layer as an ONNX operator.

Legend: T time, B batch, D directions, I input, H hidden, P projected size (H without projection).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

OPSET = 20
# Where ONNX's gates are in torch's weights: torch has i,f,g,o and r,z,n, ONNX i,o,f,c and z,r,h.
GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN_TANH": (0,), "RNN_RELU": (0,)}


@dataclass(frozen=True)
class Weights:
    """The weights of one layer and direction, as torch has them."""

    ih: Tensor  # (gates * H, I)
    hh: Tensor  # (gates * H, P)
    b_ih: Tensor | None  # (gates * H)
    b_hh: Tensor | None
    hr: Tensor | None  # (P, H)

    @property
    def hidden(self) -> int:
        return self.hh.shape[1] if self.hr is None else self.hr.shape[1]


State = tuple[Tensor, ...]  # h (D, B, P), and for an LSTM c (D, B, H)


def run_layer(
    mode: str,
    x: Tensor,
    weights: list[Weights],
    *,
    lengths: Tensor | None,
    state: State | None,
    reverse: bool = False,
) -> tuple[Tensor, State]:
    """Return the output (T, B, D * P) and the last state of a layer of one or two directions.

    With two entries in `weights` the second is the one that runs backward; `reverse` makes a
    single one run backward.
    """
    if len(weights) == 1:
        one = weights[0]
        run = _run if one.hr is None else _run_projected
        return run(mode, x, weights, lengths, state, "reverse" if reverse else "forward")
    if weights[0].hr is None:
        return _run(mode, x, weights, lengths, state, "bidirectional")
    halves = []
    for place, one in enumerate(weights):
        own = None if state is None else tuple(s[place : place + 1] for s in state)
        direction = "reverse" if place else "forward"
        halves.append(_run_projected(mode, x, [one], lengths, own, direction))
    states = zip(*(last for _, last in halves), strict=True)
    return torch.cat([y for y, _ in halves], -1), tuple(torch.cat(parts) for parts in states)


def _run(
    mode: str,
    x: Tensor,
    weights: list[Weights],
    lengths: Tensor | None,
    state: tuple[Tensor | None, ...] | None,
    direction: str,
) -> tuple[Tensor, State]:
    steps, batch, hidden, directions = *x.shape[:2], weights[0].hidden, len(weights)
    bias = None
    if weights[0].b_ih is not None:
        bias = torch.stack(
            [torch.cat([_reordered(w.b_ih, mode), _reordered(w.b_hh, mode)]) for w in weights]
        )
    count = 2 if mode == "LSTM" else 1
    inputs = [
        x,
        torch.stack([_reordered(w.ih, mode) for w in weights]),
        torch.stack([_reordered(w.hh, mode) for w in weights]),
        bias,
        None if lengths is None else lengths.to(torch.int32),
        *(state if state is not None else [None] * count),
    ]
    while inputs[-1] is None:
        inputs.pop()
    attributes: dict[str, int | str | list[str]] = {"hidden_size": hidden, "direction": direction}
    if mode == "GRU":
        attributes["linear_before_reset"] = 1
    if mode.startswith("RNN"):
        attributes["activations"] = [mode.removeprefix("RNN_").capitalize()] * directions
    output, *last = torch.onnx.ops.symbolic_multi_out(
        mode.partition("_")[0],
        inputs,
        attributes,  # type: ignore[arg-type]
        dtypes=[x.dtype] * (1 + count),
        shapes=[(steps, directions, batch, hidden), *[(directions, batch, hidden)] * count],
        version=OPSET,
    )  # (T, D, B, H), (D, B, H)
    if directions == 1:
        return output.squeeze(1), tuple(last)
    return output.transpose(1, 2).flatten(2), tuple(last)


def _run_projected(
    mode: str,
    x: Tensor,
    weights: list[Weights],
    lengths: Tensor | None,
    state: State | None,
    direction: str,
) -> tuple[Tensor, State]:
    """An LSTM with a projection, which ONNX does not have, by one without.

    With m = o * tanh(c), the output is h = W_hr m, so W_hh h = (W_hh W_hr) m: a plain LSTM whose
    output is m. A given h_0 need not be W_hr times anything; it enters as more input features,
    which are h_0 at the first step and zero after it, read by W_hh.
    """
    (w,) = weights
    assert w.hr is not None
    ih: Tensor = w.ih
    started: tuple[Tensor | None, ...] | None = None
    if state is not None:
        h_0, c_0 = state
        steps = torch.arange(x.shape[0], device=x.device)[:, None]  # (T, 1)
        first = torch.zeros_like(steps[:1, 0])
        if direction == "reverse":
            first = first + x.shape[0] - 1 if lengths is None else lengths.to(steps.dtype) - 1
        at_first = (steps == first).to(x.dtype)[:, :, None]  # (T, 1 or B, 1)
        x = torch.cat([x, at_first * h_0], -1)
        ih = torch.cat([w.ih, w.hh], 1)
        started = (None, c_0)
    plain = Weights(ih, w.hh @ w.hr, w.b_ih, w.b_hh, None)
    m, (m_n, c_n) = _run(mode, x, [plain], lengths, started, direction)
    return F.linear(m, w.hr), (F.linear(m_n, w.hr), c_n)


def _reordered(weight: Tensor | None, mode: str) -> Tensor:
    assert weight is not None
    order = GATES[mode]
    rows = weight.shape[0] // len(order)
    parts = [weight[place * rows : (place + 1) * rows] for place in order]
    return weight if len(order) == 1 else torch.cat(parts)
