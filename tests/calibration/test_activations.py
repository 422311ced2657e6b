"""What the matrices of a layer read, against one step of one sequence at a time."""

from collections import defaultdict
from typing import Any

import oracle
import pytest
import torch
from hypothesis import given
from rnn_grid import Case, cases
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, unpack_sequence

import thinrnn
from thinrnn._calibration.activations import reads_of
from thinrnn._layers.registry import layer_of


def recorded(module: nn.Module, *args: Any) -> dict[str, Tensor]:
    layer = layer_of("", module, module)
    assert layer is not None
    reads = reads_of(layer)
    assert reads is not None
    with torch.no_grad():
        return dict(reads(layer, args, {}))


def stepwise(rnn: nn.RNNBase, x: Any, hx: Any) -> dict[str, Tensor]:
    """The rows that each matrix reads, from the slow reference."""
    rows: dict[str, list[Tensor]] = defaultdict(list)
    if isinstance(x, PackedSequence):
        sequences = unpack_sequence(x)
    elif x.dim() == 2:
        sequences = [x]
    else:
        sequences = list(x if rnn.batch_first else x.transpose(0, 1))
    parts = [n.removeprefix("weight_ih_") for n in dict(rnn.named_parameters()) if "weight_ih" in n]
    for b, sequence in enumerate(sequences):
        outputs: list[Tensor] = []
        for place, part in enumerate(parts):
            h, c = _first(rnn, hx, place, b)
            steps = sequence.flip(0) if part.endswith("_reverse") else sequence
            output = []
            for x_t in steps:
                rows[f"weight_ih_{part}"].append(x_t)
                rows[f"weight_hh_{part}"].append(h)
                h, c, inside = _step(rnn, part, x_t, h, c)
                rows[f"weight_hr_{part}"].append(inside)
                output.append(h)
            outputs.append(torch.stack(output[::-1] if part.endswith("_reverse") else output))
            if len(outputs) == 1 + rnn.bidirectional:
                sequence, outputs = torch.cat(outputs, -1), []
    names = dict(rnn.named_parameters())
    return {name: torch.stack(values) for name, values in rows.items() if name in names}


def _first(rnn: nn.RNNBase, hx: Any, place: int, b: int) -> tuple[Tensor, Tensor]:
    outputs = rnn.proj_size or rnn.hidden_size
    if hx is None:
        return torch.zeros(outputs).double(), torch.zeros(rnn.hidden_size).double()
    h, c = hx if rnn.mode == "LSTM" else (hx, hx)
    return h[place].reshape(-1, outputs)[b], c[place].reshape(-1, rnn.hidden_size)[b]


def _step(
    rnn: nn.RNNBase, part: str, x: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The next h and c, and what a projection reads."""
    W, U, b_ih, b_hh, W_hr = oracle._weights(rnn, part)
    x, h, c = x[None, None], h[None], c[None]
    if rnn.mode == "LSTM":
        _, inside, c = oracle.lstm(x, h, c, W, U, b_ih, b_hh)
        h = inside if W_hr is None else inside @ W_hr.T
        return h[0], c[0], inside[0]
    if rnn.mode == "GRU":
        h = oracle.gru(x, h, W, U, b_ih, b_hh)[1]
    else:
        kind = rnn.mode.removeprefix("RNN_").lower()
        h = oracle.rnn(x, h, W, U, b_ih, b_hh, nonlinearity=kind)[1]
    return h[0], c[0], h[0]


@given(cases())
def test_recurrent_layers_show_what_each_step_reads(case: Case) -> None:
    rnn, x, hx = case.module(), case.input(), case.hx()
    with torch.no_grad():
        expected = stepwise(rnn, x, hx)
    found = recorded(rnn, x, hx)
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        assert found[name].shape == rows.shape
        torch.testing.assert_close(found[name].T @ found[name], rows.T @ rows)
        torch.testing.assert_close(found[name].sum(0), rows.sum(0))


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("mode", ["zeros", "reflect"])
@pytest.mark.parametrize("padding", [2, "same"])
def test_a_convolution_is_a_matrix_times_what_it_reads(
    dims: int, mode: str, padding: int | str
) -> None:
    kind = (nn.Conv1d, nn.Conv2d)[dims - 1]
    conv = kind(3, 5, 3, padding=padding, padding_mode=mode, dilation=2)
    x = torch.randn(2, 3, *(8,) * dims)
    columns = recorded(conv, x)["weight"]
    expected = conv(x).movedim(1, -1).flatten(0, -2)
    torch.testing.assert_close(columns @ conv.weight.flatten(1).T + conv.bias, expected)


@pytest.mark.parametrize("depth", [1, 3])
def test_highway_layers_show_each_depth(depth: int) -> None:
    rhn = thinrnn.RHN(3, 4, depth=depth).double()
    x, s = torch.randn(5, 2, 3).double(), torch.randn(2, 4).double()
    found = recorded(rhn, x, s)
    U = [rhn.get_parameter(f"weight_hh_d{d}") for d in range(depth)]
    b = [rhn.get_parameter(f"bias_d{d}") for d in range(depth)]
    outputs, _ = oracle.rhn(x, s, rhn.weight_ih, U, b)
    before = torch.cat([s[None], outputs[:-1]])
    torch.testing.assert_close(found["weight_ih"], x.flatten(0, 1))
    torch.testing.assert_close(found["weight_hh_d0"], before.flatten(0, 1).detach())
    if depth > 1:  # the last depth turns what it reads into the output
        read = found[f"weight_hh_d{depth - 1}"]
        h, t = (read @ U[-1].T + b[-1]).chunk(2, -1)
        after = torch.tanh(h) * torch.sigmoid(t) + read * (1 - torch.sigmoid(t))
        torch.testing.assert_close(after, outputs.flatten(0, 1))


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells_show_input_and_state(kind: type[nn.RNNCellBase]) -> None:
    cell, x, h = kind(3, 4), torch.randn(2, 3), torch.randn(2, 4)
    state = (h, torch.randn(2, 4)) if kind is nn.LSTMCell else h
    assert torch.equal(recorded(cell, x, state)["weight_ih"], x)
    assert torch.equal(recorded(cell, x, state)["weight_hh"], h)
    assert torch.equal(recorded(cell, x)["weight_hh"], torch.zeros(2, 4))
