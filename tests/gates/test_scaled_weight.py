"""Scaling a weight by gates: the fast ways against plain multiplication."""

import warnings

import pytest
import torch
from torch import Tensor

import thinrnn
from thinrnn._gates import scaled_weight as scaling


def plain(weight: Tensor, gate: Tensor) -> Tensor:
    return weight * gate.view(1, -1, *[1] * (weight.dim() - 2))


def gradients(product: Tensor, x: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    flat = product.flatten(2).sum(-1) if product.dim() > 2 else product
    loss = (x @ flat.t()).sin().sum() + product.square().sum()
    return torch.autograd.grad(loss, inputs)


@pytest.mark.parametrize("shape", [(70, 50), (60, 50, 3)])
@pytest.mark.parametrize("large", [2**4, 2**30])
def test_gradients_are_those_of_the_product(shape, large, monkeypatch):
    monkeypatch.setattr(scaling, "LARGE", large)
    weight = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    gate = torch.rand(50, dtype=torch.float64, requires_grad=True)
    x = torch.randn(4, 50, dtype=torch.float64)
    found = gradients(scaling.scale(weight, gate, 1), x, weight, gate)
    expected = gradients(plain(weight, gate), x, weight, gate)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_gradient_that_is_still_referenced_is_not_overwritten(monkeypatch):
    monkeypatch.setattr(scaling, "LARGE", 2**4)
    weight = torch.randn(70, 50, requires_grad=True)
    gate = torch.rand(50, requires_grad=True)
    given = torch.randn(70, 50)
    before = given.clone()
    scaling.scale(weight, gate, 1).backward(given)
    assert torch.equal(given, before)


def test_the_gradient_of_a_later_use_is_not_overwritten(monkeypatch):
    monkeypatch.setattr(scaling, "LARGE", 2**4)
    weight = torch.randn(70, 50, requires_grad=True)
    gate = torch.rand(50, requires_grad=True)
    other = torch.randn(70, 50, requires_grad=True)
    total = scaling.scale(weight, gate, 1) + other
    total.retain_grad()
    total.square().sum().backward()
    torch.testing.assert_close(total.grad, 2 * total.detach())
    torch.testing.assert_close(other.grad, 2 * total.detach())


def test_memory_is_used_again_but_not_while_a_graph_needs_it(monkeypatch):
    monkeypatch.setattr(scaling, "LARGE", 2**4)
    scratch = scaling.Scratch()
    x = torch.randn(4, 50, dtype=torch.float64)
    weight = torch.randn(70, 50, dtype=torch.float64, requires_grad=True)
    gates = [torch.rand(50, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    first, second = (scaling.scale(weight, gate, 1, scratch) for gate in gates)
    assert first.data_ptr() != second.data_ptr()
    together = gradients(first, x, weight, gates[0]), gradients(second, x, weight, gates[1])
    for found, gate in zip(together, gates, strict=True):
        for a, b in zip(found, gradients(plain(weight, gate), x, weight, gate), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    del first, second
    third = scaling.scale(weight, gates[0], 1, scratch)
    place = third.data_ptr()
    del third
    assert scaling.scale(weight, gates[1], 1, scratch).data_ptr() == place
    with torch.inference_mode():
        scaling.scale(weight, gates[0], 1, scratch)
    torch.testing.assert_close(scaling.scale(weight, gates[0], 1, scratch), plain(weight, gates[0]))


@pytest.mark.parametrize("options", [{"num_layers": 2}, {"bias": False}, {"bidirectional": True}])
def test_weights_in_one_piece_are_the_weights_in_the_order_of_cudnn(options):
    lstm = torch.nn.LSTM(5, 7, **options)
    own, x = lstm._flat_weights, torch.randn(4, 3, 5)
    pieces = scaling.in_one_piece(own)
    assert len({piece.untyped_storage().data_ptr() for piece in pieces}) == 1
    starts = sorted((piece.storage_offset(), piece.dim(), i) for i, piece in enumerate(pieces))
    dims = [dim for _, dim, _ in starts]
    assert dims == sorted(dims, reverse=True)  # matrices first
    matrices = [i for _, dim, i in starts if dim == 2]
    assert matrices == sorted(matrices)
    expected = torch.autograd.grad(lstm(x)[0].sin().sum(), own)
    lstm.__dict__["_flat_weights"] = pieces
    found = torch.autograd.grad(lstm(x)[0].sin().sum(), own)
    for a, b, weight, piece in zip(found, expected, own, pieces, strict=True):
        assert torch.equal(piece, weight)
        torch.testing.assert_close(a, b)


def test_attaching_changes_no_warnings_filter():
    before = list(warnings.filters)
    model, x = torch.nn.LSTM(4, 6, num_layers=2), torch.zeros(3, 2, 4)
    thinrnn.attach_(model, thinrnn.find_groups(model, x))
    model(x)
    assert warnings.filters == before
