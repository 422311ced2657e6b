"""A loss that is NaN in a user's own loop: gates stay, and one warning says so."""

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from interop.net import Tagger, X, gated
from torch import Tensor, nn

import thinrnn
from thinrnn.errors import GateError

SAID = "gates are NaN or infinite"


def alphas(model: nn.Module) -> dict[str, Tensor]:
    return {n: gate.log_alpha.detach().clone() for n, gate in thinrnn.gates(model).items()}


def train(
    model: nn.Module,
    make: Callable[..., torch.optim.Optimizer],
    factors: list[float],
    *,
    penalized: bool = True,
) -> torch.optim.Optimizer:
    """Train the gates alone; a loss is multiplied by its factor."""
    limit = thinrnn.L0(model, weight=1e-3)
    optimizer = make([gate.log_alpha for gate in thinrnn.gates(model).values()])
    for step, factor in enumerate(factors):
        if factor == 0:  # the step is left out
            continue
        torch.manual_seed(step)
        loss = model(X).square().mean() * factor
        if penalized:
            loss = loss + limit()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.5),
}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_step_that_is_not_a_number_moves_neither_gates_nor_state(make: Any, bad: float) -> None:
    model, other = gated(), gated()
    with pytest.warns(UserWarning, match=SAID) as said:
        hit = train(model, make, [1, 1, bad, 1, bad, bad, 1])
    assert len([one for one in said if SAID in str(one.message)]) == 1
    left = train(other, make, [1, 1, 0, 1, 0, 0, 1])
    torch.testing.assert_close(alphas(model), alphas(other), rtol=0, atol=0)
    states = hit.state_dict()["state"], left.state_dict()["state"]
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_gates_of_a_copy_stay_too(copied: Any) -> None:
    model = copied(gated())
    before = alphas(model)
    with pytest.warns(UserWarning, match=SAID):
        train(model, OPTIMIZERS["Adam"], [float("nan")])
    torch.testing.assert_close(alphas(model), before, rtol=0, atol=0)


def test_under_a_target_a_training_that_diverges_keeps_its_gates() -> None:
    model = gated()
    target = thinrnn.Target(model, params=0.6, steps=40)
    optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-2, gate_lr=0.5))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(40):
            loss = model(X).square().mean() * (float("nan") if step == 20 else 1)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            target.step()
    assert len([one for one in said if SAID in str(one.message)]) == 1
    assert next(model.rnn.parameters()).isnan().any()  # weights are the optimizer's own business
    assert all(a.isfinite().all() for a in alphas(model).values())
    assert thinrnn.count(thinrnn.compact(model)).params <= target.limit["params"]


def test_steps_that_a_scaler_skips_are_not_reported() -> None:
    model = gated()
    before = alphas(model)
    optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-2, gate_lr=0.5))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1000)
    skipped = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(30):
            scaler.scale(model(X).square().mean() * 100).backward()
            scaler.step(optimizer)
            scaler.update()
            skipped.append(torch.equal(alphas(model)["rnn.l0"], before["rnn.l0"]))
            optimizer.zero_grad()
    assert skipped[0] and not skipped[-1]
    assert all(a.isfinite().all() for a in alphas(model).values())


def test_baselines_refuse_weights_that_are_not_numbers() -> None:
    model = Tagger()
    plan = thinrnn.find_groups(model, X)
    lasso = thinrnn.GroupLasso(model, plan, weight=1e-2)
    with torch.no_grad():
        model.rnn.weight_hh_l0[3, 2] = torch.nan
    for broken in (
        lasso.alive,
        lasso.close_,
        lambda: thinrnn.magnitude_(model, plan, params=0.5),
    ):
        with pytest.raises(GateError, match=r"'rnn\.l0'.*NaN.*checkpoint"):
            broken()
    assert thinrnn.attach_(model, plan) is model  # nothing was left on it
