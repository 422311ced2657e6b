"""The gated cells step by step, as the equations have them: slow, and the oracle of the tests.

Readers of a neuron are gated, its own state is not: x is read as z*x and h as s*h, in every product
with a weight, while the states that go on to the next step, and to the caller, are the raw ones.

T steps, B sequences, m inputs, n cells, r outputs (r = n unless there is a projection).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence

Gates = Mapping[str, Tensor]


def lstm(
    x: Tensor,  # (T, B, m)
    h: Tensor,  # (B, r)
    c: Tensor,  # (B, n)
    W: Tensor,  # (4n, m)
    U: Tensor,  # (4n, r)
    b_ih: Tensor | None = None,  # (4n,)
    b_hh: Tensor | None = None,  # (4n,)
    W_hr: Tensor | None = None,  # (r, n)
    *,
    z: Tensor | None = None,  # (m,)
    s: Tensor | None = None,  # (r,)
    s_cell: Tensor | None = None,  # (n,)
) -> tuple[Tensor, Tensor, Tensor]:
    """All outputs (T, B, r), the last h and the last c of one LSTM layer in one direction.

    z gates the inputs, s the outputs where they are read again at the next step, and s_cell the
    cells where the projection W_hr reads them.
    """
    outputs = []
    for x_t in x:
        a = _product(W, _gated(x_t, z), b_ih) + _product(U, _gated(h, s), b_hh)  # (B, 4n)
        i, f, g, o = a.chunk(4, -1)  # (B, n) each
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        if W_hr is not None:
            h = _product(W_hr, _gated(h, s_cell), None)  # (B, r)
        outputs.append(h)
    return torch.stack(outputs), h, c


def gru(
    x: Tensor,  # (T, B, m)
    h: Tensor,  # (B, n)
    W: Tensor,  # (3n, m)
    U: Tensor,  # (3n, n)
    b_ih: Tensor | None = None,  # (3n,)
    b_hh: Tensor | None = None,  # (3n,)
    *,
    z: Tensor | None = None,  # (m,)
    s: Tensor | None = None,  # (n,)
) -> tuple[Tensor, Tensor]:
    """All outputs (T, B, n) and the last h of one GRU layer in one direction.

    z gates the inputs and s the hidden neurons, where U reads them; the share of h that the update
    gate carries over is the neuron's own state, so it is raw.
    """
    outputs = []
    for x_t in x:
        from_x = _product(W, _gated(x_t, z), b_ih)  # (B, 3n)
        from_h = _product(U, _gated(h, s), b_hh)  # (B, 3n)
        x_reset, x_update, x_new = from_x.chunk(3, -1)  # (B, n) each
        h_reset, h_update, h_new = from_h.chunk(3, -1)  # (B, n) each
        reset = torch.sigmoid(x_reset + h_reset)
        update = torch.sigmoid(x_update + h_update)
        new = torch.tanh(x_new + reset * h_new)
        h = (1 - update) * new + update * h
        outputs.append(h)
    return torch.stack(outputs), h


def rnn(
    x: Tensor,  # (T, B, m)
    h: Tensor,  # (B, n)
    W: Tensor,  # (n, m)
    U: Tensor,  # (n, n)
    b_ih: Tensor | None = None,  # (n,)
    b_hh: Tensor | None = None,  # (n,)
    *,
    nonlinearity: str = "tanh",
    z: Tensor | None = None,  # (m,)
    s: Tensor | None = None,  # (n,)
) -> tuple[Tensor, Tensor]:
    """All outputs (T, B, n) and the last h of one plain recurrent layer in one direction."""
    activation = {"tanh": torch.tanh, "relu": torch.relu}[nonlinearity]
    outputs = []
    for x_t in x:
        h = activation(_product(W, _gated(x_t, z), b_ih) + _product(U, _gated(h, s), b_hh))
        outputs.append(h)
    return torch.stack(outputs), h


def rhn(
    x: Tensor,  # (T, B, m)
    s: Tensor,  # (B, n)
    W: Tensor,  # (2n, m): rows of h, then rows of t
    U: Sequence[Tensor],  # (2n, n) for each depth
    b: Sequence[Tensor],  # (2n,) for each depth
    *,
    z: Tensor | None = None,  # (m,)
    g: Tensor | None = None,  # (n,)
) -> tuple[Tensor, Tensor]:
    """All outputs (T, B, n) and the last state of a recurrent highway layer.

    z gates the inputs and g the neurons of the state where a matrix reads them; the share of the
    state that is carried over is the neuron's own, so it is raw.
    """
    n = s.size(-1)
    outputs = []
    for x_t in x:
        for d in range(len(U)):
            h = _product(U[d][:n], _gated(s, g), b[d][:n])  # (B, n)
            t = _product(U[d][n:], _gated(s, g), b[d][n:])  # (B, n)
            if d == 0:
                h = h + _product(W[:n], _gated(x_t, z), None)
                t = t + _product(W[n:], _gated(x_t, z), None)
            h, t = torch.tanh(h), torch.sigmoid(t)
            s = h * t + s * (1 - t)
        outputs.append(s)
    return torch.stack(outputs), s


def layer(
    module: Any,
    name: str,
    x: Tensor,  # (T, B, m)
    state: tuple[Tensor, ...],
    gates: Gates,
    z: Tensor | None = None,  # (m,)
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Outputs (T, B, r) and last states of the layer and direction `name`, as "l1_reverse"."""
    backward = name.endswith("_reverse")
    W, U, b_ih, b_hh, W_hr = _weights(module, name)
    x = x.flip(0) if backward else x
    s = gates.get(name)
    if module.mode == "LSTM":
        h, c = state
        s_cell = gates.get(f"{name}_cell")
        output, *last = lstm(x, h, c, W, U, b_ih, b_hh, W_hr, z=z, s=s, s_cell=s_cell)
    elif module.mode == "GRU":
        (h,) = state
        output, *last = gru(x, h, W, U, b_ih, b_hh, z=z, s=s)
    else:
        (h,) = state
        nonlinearity = module.mode.removeprefix("RNN_").lower()
        output, *last = rnn(x, h, W, U, b_ih, b_hh, nonlinearity=nonlinearity, z=z, s=s)
    return output.flip(0) if backward else output, tuple(last)


def network(module: Any, x: Any, hx: Any = None, gates: Gates | None = None) -> tuple[Any, Any]:
    """What an nn.LSTM, nn.GRU, nn.RNN or RNNStack in eval mode returns, with its neurons gated.

    Gates are given by group, "input", "l0", "l0_reverse", "l1", ...; with a projection "l0" are
    the projected outputs and "l0_cell" the cells behind them. A group that is not named is open.
    The gates of a layer act on its own recurrence and on both directions of the next layer; who
    reads the output of the last one is not known here, so it is returned raw.
    States come back stacked where their sizes agree, and as a list where they do not.
    """
    gates = gates or {}
    if isinstance(x, PackedSequence):
        return _packed(module, x, hx, gates)
    if x.dim() == 2:
        hx = _each_state(module, hx, lambda state: state.unsqueeze(0))
        output, states = _padded(module, x.unsqueeze(1), hx, gates)  # (T, 1, r)
        return output.squeeze(1), _joined(module, [[t.squeeze(0) for t in s] for s in states])
    x = x.transpose(0, 1) if module.batch_first else x  # (T, B, m)
    output, states = _padded(module, x, hx, gates)
    return output.transpose(0, 1) if module.batch_first else output, _joined(module, states)


def _padded(module: Any, x: Tensor, hx: Any, gates: Gates) -> tuple[Tensor, list[Any]]:
    """The output (T, B, r) and, per layer and direction, the last (h,) or (h, c)."""
    z = gates.get("input")
    directions = ["", "_reverse"] if module.bidirectional else [""]
    last: list[Any] = []
    for k in range(module.num_layers):
        outputs, read = [], []
        for name in [f"l{k}{direction}" for direction in directions]:
            state = _initial(module, name, len(last), x.size(1), hx)
            output, final = layer(module, name, x, state, gates, z)
            outputs.append(output)
            read.append(gates.get(name, torch.ones_like(output[0, 0])))
            last.append(final)
        x, z = torch.cat(outputs, -1), torch.cat(read)
    return x, last


def _packed(module: Any, packed: PackedSequence, hx: Any, gates: Gates) -> tuple[Any, Any]:
    """Every sequence on its own, so that no padding can leak into anything."""
    outputs, states = [], []
    for b, x in enumerate(unpack_sequence(packed)):
        own = _each_state(module, hx, lambda state, b=b: state[b : b + 1])
        output, final = _padded(module, x.unsqueeze(1), own, gates)
        outputs.append(output.squeeze(1))
        states.append(final)
    if packed.sorted_indices is not None:
        outputs = [outputs[b] for b in packed.sorted_indices.tolist()]
    last = [[torch.cat(parts) for parts in zip(*s, strict=True)] for s in zip(*states, strict=True)]
    return PackedSequence(pack_sequence(outputs).data, *packed[1:]), _joined(module, last)


def _initial(module: Any, name: str, place: int, batch: int, hx: Any) -> tuple[Tensor, ...]:
    """The (h,) or (h, c) that one layer and direction starts from."""
    if hx is not None:
        return (hx[0][place], hx[1][place]) if module.mode == "LSTM" else (hx[place],)
    W, U, *_ = _weights(module, name)
    cells = W.size(0) // {"LSTM": 4, "GRU": 3}.get(module.mode, 1)
    h, c = W.new_zeros(batch, U.size(1)), W.new_zeros(batch, cells)
    return (h, c) if module.mode == "LSTM" else (h,)


def _weights(module: Any, name: str) -> list[Any]:
    """W, U, b_ih, b_hh, W_hr of one layer and direction, None for what it does not have."""
    owner, suffix = (getattr(module, name), "l0") if hasattr(module, name) else (module, name)
    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    return [getattr(owner, f"{kind}_{suffix}", None) for kind in kinds]


def _each_state(module: Any, hx: Any, change: Any) -> Any:
    """The same states as lists, with the tensor of each layer and direction changed."""
    if hx is None:
        return None
    if module.mode == "LSTM":
        return tuple([change(state) for state in states] for states in hx)
    return [change(state) for state in hx]


def _joined(module: Any, states: list[Any]) -> Any:
    kinds = [list(kind) for kind in zip(*states, strict=True)]
    joined = [
        torch.stack(kind) if len({state.shape for state in kind}) == 1 else kind for kind in kinds
    ]
    return tuple(joined) if module.mode == "LSTM" else joined[0]


def _product(weight: Tensor, x: Tensor, bias: Tensor | None) -> Tensor:
    product = x @ weight.T
    return product if bias is None else product + bias


def _gated(x: Tensor, gate: Tensor | None) -> Tensor:
    return x if gate is None else x * gate
