"""What each weight matrix reads while the model runs.

    Linear     weight        the input                          (N, m)
    LSTM ...   weight_ih_l1  the output of layer 0              (N, n)
               weight_hh_l1  the state before each step         (N, n)
    Conv1d     weight        the input under the kernel, taps side by side  (N, m * k)

Rows are positions in time and batch. Fused layers do not show what they read inside, so those of
several layers run once more here, layer by layer.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from thinrnn._layers.base import Layer, argument
from thinrnn._layers.feedforward import ConvLayer, LinearLayer
from thinrnn._layers.recurrent import CellLayer, RHNLayer, RNNLayer
from thinrnn.nn.rnn_stack import RNNStack

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Reading = tuple[str, Tensor]  # (parameter of the module, what it reads (N, positions))
Reads = Callable[[Any, Args, Kwargs], Iterator[Reading]]
LayerType = TypeVar("LayerType", bound=Layer)

_READS: dict[type[Layer], Reads] = {}


def reads(kind: type[Layer]) -> Callable[[Reads], Reads]:
    """Register what the matrices of a kind of layer read in a call."""

    def register(function: Reads) -> Reads:
        _READS[kind] = function
        return function

    return register


def reads_of(layer: Layer) -> Reads | None:
    """Return the function that yields what a layer reads, or None where it is not known."""
    return _READS.get(type(layer)) if layer.is_plain else None


def bias_of(layer: Layer, parameter: str) -> str:
    """Return the bias that is added to what a matrix computes: "bias_hh_l0" for "weight_hh_l0"."""
    if isinstance(layer, RHNLayer):
        return "bias_d0" if parameter == "weight_ih" else parameter.replace("weight_hh", "bias")
    return parameter.replace("weight", "bias")


def output_of(layer: Layer, parameter: str) -> str:
    """Return a name for what a matrix adds to: one for the matrices that simply add up.

    Those of a GRU do not, since a gate multiplies what its recurrent matrix computes.
    """
    bias = bias_of(layer, parameter)
    is_gru = isinstance(layer.module, nn.GRUCell) or getattr(layer.module, "mode", "") == "GRU"
    return bias if is_gru else bias.replace("_ih", "").replace("_hh", "")


@reads(LinearLayer)
def linear(layer: LinearLayer, args: Args, kwargs: Kwargs) -> Iterator[Reading]:
    x = argument(args, kwargs, 0, "input")
    yield "weight", x.reshape(-1, x.shape[-1])


@reads(ConvLayer)
def convolution(layer: ConvLayer, args: Args, kwargs: Kwargs) -> Iterator[Reading]:
    conv = layer.module
    x = argument(args, kwargs, 0, "input")
    dims = conv.weight.dim() - 2
    if conv.groups > 1 or dims > 2:
        return
    x = x if x.dim() == dims + 2 else x.unsqueeze(0)
    if conv.padding_mode != "zeros" or isinstance(conv.padding, str):
        x = F.pad(x, conv._reversed_padding_repeated_twice, _pad_mode(conv.padding_mode))
        padding = (0,) * dims
    else:
        padding = conv.padding
    one = (1,) * (2 - dims)  # conv1d is conv2d of height 1
    columns = F.unfold(
        x.reshape(x.shape[0], x.shape[1], *one, *x.shape[2:]),
        (*one, *conv.kernel_size),
        dilation=(*one, *conv.dilation),
        padding=((0,) * len(one) + tuple(padding)),
        stride=(*one, *conv.stride),
    )  # (B, m * k, L)
    yield "weight", columns.movedim(1, -1).flatten(0, 1)


def _pad_mode(mode: str) -> str:
    return "constant" if mode == "zeros" else mode


@reads(CellLayer)
def cell(layer: CellLayer, args: Args, kwargs: Kwargs) -> Iterator[Reading]:
    x = argument(args, kwargs, 0, "input")
    hx = argument(args, kwargs, 1, "hx")
    n = layer.module.weight_hh.shape[1]
    if hx is None:
        h = x.new_zeros(*x.shape[:-1], n)
    else:
        h = hx[0] if isinstance(layer.module, nn.LSTMCell) else hx
    yield "weight_ih", x.reshape(-1, x.shape[-1])
    yield "weight_hh", h.reshape(-1, n)


@reads(RNNLayer)
def recurrent(layer: RNNLayer, args: Args, kwargs: Kwargs) -> Iterator[Reading]:
    rnn = layer.module
    x, lengths = _time_first(rnn, argument(args, kwargs, 0, "input"))  # (T, B, m), (B,)
    time = torch.arange(len(x), device=x.device)[:, None]  # (T, 1)
    present = time < lengths  # (T, B)
    backwards = torch.where(present, lengths - 1 - time, time)  # (T, B)
    first = _first_states(layer, argument(args, kwargs, 1, "hx"), x)
    cells = dict(RNNStack.from_rnn(rnn).named_children())  # one module per layer and direction
    for one in cells.values():
        assert isinstance(one, nn.RNNBase)
        one.batch_first = False
    outputs: list[Tensor] = []
    for part in layer.parts:
        is_reverse = part.endswith("_reverse")
        h_0, c_0 = first[part]  # (B, outputs), (B, n)
        z = _in_order(x, backwards) if is_reverse else x  # as this direction meets it
        hx = (h_0[None], c_0[None]) if rnn.mode == "LSTM" else h_0[None]
        h = cells[part](z, hx)[0]  # (T, B, outputs)
        before = torch.cat([h_0[None], h[:-1]])
        yield f"weight_ih_{part}", z[present]
        yield f"weight_hh_{part}", before[present]
        if rnn.proj_size > 0:
            yield f"weight_hr_{part}", _before_projection(cells[part], z, before, c_0)[present]
        outputs.append(_in_order(h, backwards) if is_reverse else h)
        if len(outputs) == 1 + rnn.bidirectional:
            x, outputs = torch.cat(outputs, -1), []


def _time_first(rnn: nn.RNNBase, given: Tensor | PackedSequence) -> tuple[Tensor, Tensor]:
    """Return the input as (time, batch, features) and the length of each sequence."""
    if isinstance(given, PackedSequence):
        x, lengths = pad_packed_sequence(given)
        return x, lengths.to(x.device)
    x = given.unsqueeze(1) if given.dim() == 2 else given
    x = x.transpose(0, 1) if rnn.batch_first and given.dim() == 3 else x
    return x, torch.full((x.shape[1],), x.shape[0], device=x.device)


def _first_states(layer: RNNLayer, hx: Any, x: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the state before the first step, hidden and cell, for each layer and direction."""
    batch = x.shape[1]
    sizes = {p: getattr(layer.module, f"weight_hh_{p}").shape[1] for p in layer.parts}
    hidden = {p: x.new_zeros(batch, n) for p, n in sizes.items()}
    cells = {p: x.new_zeros(batch, layer.module.hidden_size) for p in layer.parts}
    if hx is not None:
        for which, (_, states) in zip((hidden, cells), layer.states(hx), strict=False):
            which.update(
                (p, s.reshape(batch, -1)) for p, s in zip(layer.parts, states, strict=True)
            )
    return {p: (hidden[p], cells[p]) for p in layer.parts}


def _in_order(values: Tensor, order: Tensor) -> Tensor:
    """Return values (T, B, n) with the steps of each sequence in the order (T, B)."""
    return values.gather(0, order[..., None].expand_as(values))


def _before_projection(lstm: nn.Module, x: Tensor, before: Tensor, c: Tensor) -> Tensor:
    """Return o * tanh(c) at every step (T, B, n): what `weight_hr` reads."""
    w, u, *biases = (getattr(lstm, f"{name}_l0") for name in _names(lstm))
    a = F.linear(x, w) + F.linear(before, u) + sum(biases)  # (T, B, 4n)
    inside = []
    for i, f, g, o in zip(*a.chunk(4, -1), strict=True):
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        inside.append(torch.sigmoid(o) * torch.tanh(c))
    return torch.stack(inside)


def _names(lstm: nn.Module) -> list[str]:
    return ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if lstm.bias else [])]


@reads(RHNLayer)
def highway(layer: RHNLayer, args: Args, kwargs: Kwargs) -> Iterator[Reading]:
    rhn = layer.module
    x = argument(args, kwargs, 0, "input")
    x = x if x.dim() == 3 else x.unsqueeze(1)
    x = x.transpose(0, 1) if rhn.batch_first else x  # (T, B, m)
    hx = argument(args, kwargs, 1, "hx")
    n = rhn.get_parameter("weight_hh_d0").shape[1]
    s = x.new_zeros(x.shape[1], n) if hx is None else hx.reshape(x.shape[1], n)
    read: list[list[Tensor]] = [[] for _ in range(rhn.depth)]
    for from_x in F.linear(x, rhn.weight_ih):
        for d in range(rhn.depth):
            read[d].append(s)
            a = F.linear(s, getattr(rhn, f"weight_hh_d{d}"), getattr(rhn, f"bias_d{d}"))
            h, t = (a + from_x if d == 0 else a).chunk(2, -1)
            h, t = torch.tanh(h), torch.sigmoid(t)
            s = (h - s) * t + s
    yield "weight_ih", x.flatten(0, 1)
    for d, states in enumerate(read):
        yield f"weight_hh_d{d}", torch.cat(states)
