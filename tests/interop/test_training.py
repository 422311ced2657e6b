"""Ways of training that change the call, the loss or the optimizer."""

from typing import Any

import pytest
import torch
from interop.net import X, gated, learned

import thinrnn


def test_autocast_trains_and_the_small_model_agrees() -> None:
    model = gated()
    optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-2, gate_lr=0.1))
    before = [gate.log_alpha.detach().clone() for gate in thinrnn.gates(model).values()]
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = model(X)
        assert result.dtype == torch.bfloat16
        result.float().square().mean().backward()
        assert all(gradient.isfinite().all() for gradient in learned(model).values())
        optimizer.step()
        optimizer.zero_grad()
    after = [gate.log_alpha for gate in thinrnn.gates(model).values()]
    assert all(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    small = thinrnn.compact(model.eval())
    assert thinrnn.verify(model, small, X) < 1e-5
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(small(X), model(X), atol=2e-2, rtol=2e-2)


def test_gradients_of_micro_batches_add_up() -> None:
    """Each micro-batch draws its own gates; backward of the sum and of each are the same."""
    parts = X.split(1, dim=1)
    found = []
    for at_once in (True, False):
        model = gated().double()
        torch.manual_seed(1)
        losses = [model(part).square().mean() for part in parts[:2]]
        if at_once:
            (losses[0] + losses[1]).backward()
        else:
            for loss in losses:
                loss.backward()
        found.append(learned(model))
    torch.testing.assert_close(found[0], found[1])
    single = gated().double()
    torch.manual_seed(1)
    for part in parts[:2]:
        single(part).square().mean().backward()
    torch.testing.assert_close(learned(single), found[0])


@pytest.mark.parametrize("frozen", ["rnn.", "emb.", ""])
def test_frozen_parameters_stay_and_gates_learn(frozen: str) -> None:
    model = gated()
    own = {name for name, _ in model.named_parameters() if name.startswith("thinrnn:")}
    still = {}
    for name, parameter in model.named_parameters():
        if name.startswith(frozen) and name not in own:
            still[name] = parameter.requires_grad_(False).clone()
    target = thinrnn.Target(model, params=0.6, steps=20)
    groups = thinrnn.param_groups(model, lr=1e-2, gate_lr=1.0)
    assert len(groups[0]["params"]) == len(dict(model.named_parameters())) - len(own) - len(still)
    optimizer = torch.optim.Adam([group for group in groups if group["params"]])
    for _ in range(20):
        model(X).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        target.step()
    now = dict(model.named_parameters())
    assert all(torch.equal(now[name], value) for name, value in still.items())
    small = thinrnn.compact(model.eval())
    assert thinrnn.verify(model, small, X) < 1e-5
    assert thinrnn.count(small).params <= target.limit["params"]
    assert {n for n, p in small.named_parameters() if not p.requires_grad} >= {
        name for name in still if not name.startswith("rnn.")
    }


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_calls_without_gradients_leave_training_alone(mode: Any) -> None:
    model = gated()
    with mode():
        samples = [model(X) for _ in range(2)]
    assert not samples[0].requires_grad
    assert not torch.equal(samples[0], samples[1])  # in training each call draws
    model.eval()
    with mode():
        before = model(X)
    torch.testing.assert_close(model(X).detach(), before.clone())
    model.train()(X).square().mean().backward()
    assert all(gate.log_alpha.grad.abs().sum() > 0 for gate in thinrnn.gates(model).values())
