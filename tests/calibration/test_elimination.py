"""The order in which neurons go, against trying every neuron at every step."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from thinrnn._calibration.elimination import Reading, eliminate


def left_over(W: Tensor, A: Tensor, gone: list[int], *, free: bool) -> float:
    """The error of y = W x without some columns, the others refitted if they may be."""
    W_D = W[:, gone]
    if not free:
        return float((W_D @ A[gone][:, gone] @ W_D.T).trace())
    return float((W_D @ torch.linalg.inv(torch.linalg.inv(A)[gone][:, gone]) @ W_D.T).trace())


@given(st.integers(0, 10_000), st.integers(1, 9), st.sampled_from([1, 2, 3]), st.booleans())
def test_the_order_is_that_of_trying_them_all(seed: int, n: int, k: int, free: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(200, n * k, generator=generator, dtype=torch.float64)
    x = x @ torch.randn(n * k, n * k, generator=generator, dtype=torch.float64)
    A = x.T @ x / len(x)
    matrices = [
        torch.randn(rows, n * k, generator=generator, dtype=torch.float64) for rows in (3, 5)
    ]
    columns = torch.arange(n * k).view(n, k)
    readings = [
        Reading.of(A, W, columns, damping=0.0, free=is_free)
        for W, is_free in zip(matrices, (True, free), strict=True)
    ]
    order, added = eliminate(readings, n)
    assert sorted(order.tolist()) == list(range(n))
    gone: list[int] = []
    before, highest = 0.0, 0.0
    for neuron, error in zip(order.tolist(), added.tolist(), strict=True):
        totals = {}
        for candidate in sorted(set(range(n)) - {c // k for c in gone}):
            tried = [*gone, *columns[candidate].tolist()]
            totals[candidate] = sum(
                left_over(W, A, tried, free=is_free)
                for W, is_free in zip(matrices, (True, free), strict=True)
            )
        best = min(totals.values())
        scale = max(abs(before), best, 1e-12)
        assert totals[neuron] <= best + 1e-6 * scale
        highest = max(highest, totals[neuron] - before)
        assert abs(error - highest) <= 1e-6 * scale
        before = totals[neuron]
        gone += columns[neuron].tolist()


def test_a_large_group_loses_several_at_a_time() -> None:
    torch.manual_seed(0)
    x = torch.randn(2000, 600, dtype=torch.float64)
    W = torch.randn(4, 600, dtype=torch.float64) * torch.linspace(0.1, 2, 600)
    reading = Reading.of(x.T @ x / len(x), W, torch.arange(600)[:, None], damping=1e-3, free=True)
    order, added = eliminate([reading], 600)
    assert sorted(order.tolist()) == list(range(600))
    assert bool((added.diff() >= 0).all())
    # nearly independent: those with small weights go first
    assert float(order[:200].double().mean()) < 200 < float(order[-200:].double().mean())
