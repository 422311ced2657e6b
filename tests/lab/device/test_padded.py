"""Padded sizes change nothing: outputs, states and gradients are those of the plain layers."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from thinrnn.lab.device import padded

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
@pytest.mark.parametrize("layers", [1, 2])
def test_a_gpu_computes_the_same_under_autocast(kind, layers):
    torch.manual_seed(0)
    rnn, head = kind(29, 45, num_layers=layers).cuda(), nn.Linear(45, 20).cuda()
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
    ("kind", "layers", "hidden", "shape", "wide"),
    [
        (nn.LSTM, 1, 13, (5, 8, 128), 128),
        (nn.RNN, 1, 1024, (5, 8, 128), 1024),
        (nn.LSTM, 1, 1025, (5, 3, 16), 1032),
        (nn.LSTM, 2, 13, (5, 3, 16), 16),
        (nn.GRU, 1, 13, (5, 3, 16), 16),
    ],
)
def test_a_layer_that_can_be_one_kernel_gets_its_sizes(
    kind, layers, hidden, shape, wide, monkeypatch
):
    """As on a large GPU: whole 128 neurons, whole 8 sequences, not for a GRU."""
    monkeypatch.setattr(padded, "_has_one_kernel", lambda x: True)
    leaves, args = calls(kind, layers, (13, hidden))
    seen = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is KINDS[kind]:
                seen.append((args[0].shape, args[2][1].shape[1]))
            return func(*args, **(kwargs or {}))

    with Watch():
        found = padded.padded_rnn(KINDS[kind], *args)
    assert seen == [(shape, wide)]
    expected = KINDS[kind](*args)
    sums = [sum(r.sin().sum() for r in results) for results in (found, expected)]
    gradients = [torch.autograd.grad(total, leaves) for total in sums]
    for a, b in zip([*found, *gradients[0]], [*expected, *gradients[1]], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_smaller_gpus_keep_their_sizes(monkeypatch):
    class Gpu:
        major, minor, multi_processor_count = 8, 6, 100

    class OnGpu:
        is_cuda, device = True, "cuda"

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Gpu)
    assert not padded._has_one_kernel(OnGpu)
    Gpu.minor = 0
    assert padded._has_one_kernel(OnGpu)
    Gpu.multi_processor_count = 60
    assert not padded._has_one_kernel(OnGpu)
