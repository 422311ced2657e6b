"""Layers that run again in the backward pass get the gates of the call they belong to."""

from typing import Any

import pytest
import torch
from interop.net import Tagger, X, learned
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import thinrnn


class Saving(Tagger):
    """Runs its layers, or all of them through its caller, again in the backward pass."""

    region = ""
    reentrant = False

    def layers(self, x: Tensor) -> Tensor:
        return self.head(torch.dropout(self.rnn(x)[0], 0.3, self.training))

    def forward(self, x: Tensor) -> Tensor:
        inside = self.emb(x)
        if not inside.requires_grad:  # a call without gradients; torch would warn
            return self.layers(inside)
        if self.region == "layers":
            return checkpoint(self.layers, inside, use_reentrant=self.reentrant)
        return self.layers(inside)


def saving(region: str, reentrant: bool) -> Saving:
    torch.manual_seed(0)
    model = Saving().double()
    thinrnn.attach_(model, thinrnn.find_groups(model, X))
    model.region, model.reentrant = region, reentrant
    return model


def call(model: Saving, x: Tensor) -> Tensor:
    if model.region != "model":
        return model(x)
    # a reentrant checkpoint needs an argument that requires a gradient
    needed = torch.zeros((), requires_grad=True)
    return checkpoint(lambda x, _: model(x), x, needed, use_reentrant=model.reentrant)


def one_after_the_other(model: Saving) -> Tensor:
    losses = [call(model, (X + i) % 20).square().mean() for i in range(3)]
    return sum(losses[1:], losses[0])


def with_one_without_gradients(model: Saving) -> Tensor:
    first = call(model, X)
    with torch.no_grad():
        aim = model((X + 1) % 20)
    return (first - aim).square().mean()


def both_in_one_region(model: Saving) -> Tensor:
    needed = torch.zeros((), requires_grad=True)
    return checkpoint(lambda _: one_after_the_other(model), needed, use_reentrant=model.reentrant)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize(
    ("region", "loss"),
    [
        ("layers", one_after_the_other),
        ("layers", with_one_without_gradients),
        ("model", one_after_the_other),
        ("model", with_one_without_gradients),
        ("", both_in_one_region),
    ],
)
def test_each_call_runs_again_with_its_own_gates(region: str, loss: Any, reentrant: bool) -> None:
    plain = one_after_the_other if loss is both_in_one_region else loss
    results = []
    for model, compute in ((saving("", reentrant), plain), (saving(region, reentrant), loss)):
        for _ in range(2):  # gradients of two losses are added up
            torch.manual_seed(1)
            compute(model).backward()
        results.append(learned(model))
    assert all(gradient.abs().sum() > 0 for gradient in results[0].values())
    torch.testing.assert_close(results[1], results[0])


def test_gates_do_not_need_the_random_state_restored() -> None:
    """Without `preserve_rng_state` dropout differs, and gates do not."""
    model, results = saving("", False).train(), []
    model.layers = lambda x: model.head(model.rnn(x)[0])  # type: ignore[method-assign]
    inputs = [model.emb(X).detach(), model.emb((X + 1) % 20).detach()]
    for saved in (False, True):
        torch.manual_seed(1)
        model.zero_grad()
        losses = []
        for x in inputs:
            if saved:
                result = checkpoint(model.rnn, x, use_reentrant=False, preserve_rng_state=False)
            else:
                result = model.rnn(x)
            losses.append(result[0].square().sum())
        sum(losses).backward()  # type: ignore[union-attr]
        results.append(learned(model))
    torch.testing.assert_close(results[1], results[0])
