"""Padded sizes change nothing: outputs, states and gradients are those of the plain layers."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from thinrnn.recipes import padded

KINDS = {nn.LSTM: torch.lstm, nn.GRU: torch.gru, nn.RNN: torch.rnn_tanh}


def calls(kind, layers, sizes, *, bias=True, batch_first=False):
    """The arguments that a module hands to torch, in float64, as leaves."""
    features, hidden = sizes
    torch.manual_seed(0)
    rnn = kind(features, hidden, num_layers=layers, bias=bias).double()
    shape = (3, 5) if batch_first else (5, 3)
    x = torch.randn(*shape, features, dtype=torch.float64, requires_grad=True)
    states = [
        torch.randn(layers, 3, hidden, dtype=torch.float64, requires_grad=True)
        for _ in range(2 if kind is nn.LSTM else 1)
    ]
    hx = states if kind is nn.LSTM else states[0]
    weights = list(rnn.parameters())
    options = (bias, layers, 0.0, False, False, batch_first)
    return [x, *states, *weights], (x, hx, weights, *options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("sizes", [(1, 1), (6, 13), (8, 9), (13, 8), (16, 24)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_recurrent_layers(kind, layers, sizes, bias, batch_first):
    leaves, args = calls(kind, layers, sizes, bias=bias, batch_first=batch_first)
    expected = KINDS[kind](*args)
    found = padded.padded_rnn(KINDS[kind], *args)
    assert len(found) == len(expected)
    assert all(state.is_contiguous() for state in found[1:])  # cuDNN takes no other
    gradients = []
    for results in (expected, found):
        torch.manual_seed(1)
        loss = sum((r * torch.randn_like(r)).sum() for r in results)
        gradients.append(torch.autograd.grad(loss, leaves))
    for a, b in zip([*found, *gradients[1]], [*expected, *gradients[0]], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("features", [1, 8, 13])
def test_linear_layers(features):
    x = torch.randn(4, 3, features, dtype=torch.float64)
    layer = nn.Linear(features, 5).double()
    found = padded.padded_linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(found, F.linear(x, layer.weight, layer.bias))


@pytest.mark.parametrize("options", [{"bidirectional": True}, {"proj_size": 3}, {}])
def test_only_what_can_be_padded_is(options, monkeypatch):
    """As if this were a GPU: two directions, projections and packed sequences run as they are."""
    monkeypatch.setattr(padded, "_is_16_bit", lambda x: True)
    widths = []
    plain = padded.padded_rnn
    monkeypatch.setattr(
        padded, "padded_rnn", lambda *args: (widths.append(args[1].shape), plain(*args))[1]
    )
    torch.manual_seed(0)
    rnn = nn.LSTM(6, 7, num_layers=2, **options)
    x = torch.randn(5, 3, 6)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 4, 2]))
    expected, expected_packed = rnn(x), rnn(packed)
    with padded.Padded():
        found, found_packed = rnn(x), rnn(packed)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found_packed[0].data, expected_packed[0].data)
    assert len(widths) == (0 if options else 1)


def test_nothing_is_padded_on_a_cpu(monkeypatch):
    monkeypatch.setattr(padded, "padded_linear", None)
    with padded.Padded():
        assert nn.Linear(3, 4)(torch.zeros(2, 3)).shape == (2, 4)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_computes_the_same_under_autocast(kind):
    torch.manual_seed(0)
    rnn, head = kind(29, 45, num_layers=2).cuda(), nn.Linear(45, 20).cuda()
    parameters = [*rnn.parameters(), *head.parameters()]
    x = torch.randn(6, 4, 29, device="cuda")
    found = []
    for mode in (contextlib.nullcontext(), padded.Padded()):
        with torch.autocast("cuda", torch.bfloat16), mode:
            output, _ = rnn(x)
            loss = F.cross_entropy(head(output).flatten(0, 1), torch.arange(24, device="cuda") % 20)
        found.append([output, *torch.autograd.grad(loss, parameters)])
    for a, b in zip(*found, strict=True):
        assert (a - b).norm() < 0.02 * b.norm()


@pytest.mark.parametrize(
    ("layers", "hidden", "shape", "wide"),
    [
        (1, 13, (5, 8, 128), 128),
        (1, 1024, (5, 8, 128), 1024),
        (1, 1025, (5, 3, 16), 1032),
        (2, 13, (5, 3, 16), 16),
    ],
)
def test_one_layer_that_fits_into_a_kernel_gets_its_sizes(layers, hidden, shape, wide):
    """Whole 128 neurons and 8 sequences, which torch asks for before it takes that kernel."""
    _, args = calls(nn.LSTM, layers, (13, hidden))
    seen = []

    def lstm(x, hx, weights, *options):
        seen.append((x.shape, hx[0].shape[-1], weights[1].shape[1]))
        return torch.lstm(x, hx, weights, *options)

    padded.GATES[lstm] = 4
    try:
        padded.padded_rnn(lstm, *args)
    finally:
        del padded.GATES[lstm]
    assert seen == [(shape, wide, wide)]
