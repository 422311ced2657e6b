"""ARM: an unbiased gradient, by enumeration of all gate patterns."""

import itertools

import pytest
import torch
from torch import nn

import thinrnn
from thinrnn._gates.attach import attached
from thinrnn.errors import GateError


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.rnn, self.head = nn.GRU(2, size), nn.Linear(size, 1)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


def small_model(probabilities):
    """A GRU with one gate per hidden neuron, at these probabilities, and a loss of a call."""
    torch.manual_seed(0)
    model = Model(len(probabilities)).double()
    x, y = torch.randn(4, 3, 2, dtype=torch.float64), torch.randn(4, 3, 1, dtype=torch.float64)
    plan = thinrnn.find_groups(model, x).only("rnn.l0")
    thinrnn.attach_(model, plan, gate=thinrnn.ARM())
    gate = thinrnn.gates(model)["rnn.l0"]
    gate.log_alpha = torch.tensor(probabilities, dtype=torch.float64).logit()
    return model, gate, lambda: nn.functional.mse_loss(model(x), y)


def cells(p):
    """The parts of [0, 1) in which noise gives the same pair of samples: middle and length."""
    edges = sorted({0.0, p, 1 - p, 1.0})
    return [((low + high) / 2, high - low) for low, high in itertools.pairwise(edges)]


def gradients(model):
    """The gradient of every parameter, by name."""
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def exact(model, gate, closure):
    """The gradient of the mean loss over all patterns of gates."""
    p = torch.sigmoid(gate.log_alpha)
    mean = 0
    for pattern in itertools.product((0.0, 1.0), repeat=gate.size):
        z = torch.tensor(pattern, dtype=torch.float64)
        with attached(model).using({gate.name: z}):
            mean = mean + (p * z + (1 - p) * (1 - z)).prod() * closure()
    model.zero_grad()
    mean.backward()
    return gradients(model)


def expected(model, closure, probabilities, monkeypatch):
    """The mean over all noise of the gradient by `arm_loss`."""
    total = {}
    for chosen in itertools.product(*map(cells, probabilities)):
        noise = torch.tensor([middle for middle, _ in chosen], dtype=torch.float64)
        weight = torch.tensor([length for _, length in chosen]).double().prod()
        monkeypatch.setattr(torch, "rand", lambda *a, noise=noise, **k: noise.clone())
        model.zero_grad()
        thinrnn.arm_loss(model, closure).backward()
        for name, grad in gradients(model).items():
            total[name] = total.get(name, 0) + weight * grad
    return total


def test_gradients_of_gates_and_weights_are_unbiased(monkeypatch):
    probabilities = [0.3, 0.9, 0.5, 0.65]
    model, gate, closure = small_model(probabilities)
    wanted = exact(model, gate, closure)
    found = expected(model, closure, probabilities, monkeypatch)
    assert found.keys() == wanted.keys()
    assert gate.key("log_alpha") in found
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-6, atol=1e-9)


def test_the_two_passes_have_the_same_dropout_and_opposite_gates():
    model, gate, _ = small_model([0.5] * 4)
    seen = []

    def closure():
        seen.append(torch.rand(3))
        return model(torch.ones(2, 1, 2, dtype=torch.float64)).sum()

    thinrnn.arm_loss(model, closure)
    assert torch.equal(*seen)
    gated = attached(model)
    log_alpha, uniform = gated.noisy([gate.name])
    with torch.no_grad():
        b, opposite = (gated.estimator.sample(log_alpha, u) for u in (uniform, 1 - uniform))
    assert torch.equal(b, 1 - opposite)  # at a probability of one half


def test_a_call_in_training_without_arm_loss_is_refused():
    _, _, closure = small_model([0.5] * 4)
    with pytest.raises(GateError, match="arm_loss"):
        closure()
    with torch.no_grad():
        closure()  # nothing is to be learned here


def test_arm_loss_refuses_gates_of_another_kind():
    model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
    thinrnn.attach_(model, thinrnn.find_groups(model, x))
    with pytest.raises(GateError, match="HardConcrete"):
        thinrnn.arm_loss(model, lambda: model(x)[0].sum())


def test_a_target_prunes_with_arm_gates_and_finds_what_matters():
    torch.manual_seed(0)
    model = nn.GRU(8, 1)
    x = torch.randn(6, 16, 8)
    y = torch.tanh(x[..., :1].cumsum(0))  # only the first input matters
    thinrnn.attach_(model, thinrnn.find_groups(model, x).only("input"), gate=thinrnn.ARM())
    target = thinrnn.Target(model, params=18, steps=150)  # two or three of the inputs
    optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=0.03, gate_lr=0.1))
    for _ in range(170):
        thinrnn.arm_loss(model, lambda: nn.functional.mse_loss(model(x)[0], y)).backward()
        optimizer.step()
        optimizer.zero_grad()
        target.step()
    assert thinrnn.gates(model)["input"].keep[0]
    small = thinrnn.compact(model)
    thinrnn.verify(model, small, x)
    assert thinrnn.count(small).params <= 18
