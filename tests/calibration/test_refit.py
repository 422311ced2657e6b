"""Least squares for the columns that stay, measured on the data itself."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from thinrnn._calibration.moments import Moments
from thinrnn._calibration.refit import Signals, refit

SEEDS = st.integers(0, 10_000)


def data(seed: int, rows: int, columns: int, rank: int) -> Tensor:
    """Rows of a signal with a mean, whose columns depend on one another if `rank` is small."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return draw(rows, rank) @ draw(rank, columns) + draw(columns)


def moments(x: Tensor) -> Moments:
    found = Moments()
    for part in x.split(7):
        found.add(part)
    return found


def error(x: Tensor, W: Tensor, b: Tensor, V: Tensor, c: Tensor) -> float:
    return float((x @ W.T + b - x @ V.T - c).square().sum(1).mean())


def refitted(
    x: Tensor, W: Tensor, stays: Tensor, *, has_bias: bool, free: bool = True
) -> tuple[Tensor, Tensor]:
    """The new columns, with zeros where columns are gone, and what the bias gains."""
    same = Signals.same(moments(x))
    fit = refit(W, stays, same, same, has_bias=has_bias, free=free)
    V = torch.zeros_like(W)
    V[:, stays] = fit.weight[:, stays]
    return V, torch.zeros(len(W)).double() if fit.shift is None else fit.shift


@given(SEEDS, st.integers(2, 60), st.integers(2, 9), st.booleans(), st.data())
def test_refitting_is_never_worse_than_dropping(
    seed: int, rows: int, columns: int, has_bias: bool, draw: st.DataObject
) -> None:
    rank = draw.draw(st.integers(1, columns))
    kept = draw.draw(st.lists(st.integers(0, columns - 1), min_size=1, unique=True))
    x, stays = data(seed, rows, columns, rank), torch.tensor(sorted(kept))
    W, b = data(seed + 1, 4, columns, columns), torch.zeros(4).double()
    dropped = error(x, W, b, *refitted(x, W, stays, has_bias=has_bias, free=False))
    found = error(x, W, b, *refitted(x, W, stays, has_bias=has_bias))
    assert found <= dropped * (1 + 1e-9) + 1e-12
    if has_bias:  # means in the bias are no worse than no bias at all
        plain = torch.zeros_like(W)
        plain[:, stays] = W[:, stays]
        assert dropped <= error(x, W, b, plain, b) * (1 + 1e-9) + 1e-12


@given(SEEDS, st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_columns_that_depend_on_others_go_at_no_loss(
    seed: int, left: int, gone: int, has_bias: bool
) -> None:
    x = data(seed, 80, left, left)
    x = torch.cat([x, x @ data(seed + 1, left, gone, left)], 1)
    W, stays = data(seed + 2, 3, left + gone, left + gone), torch.arange(left)
    V, c = refitted(x, W, stays, has_bias=has_bias)
    energy = float((x @ W.T).square().sum(1).mean())
    assert error(x, W, torch.zeros(3).double(), V, c) <= 1e-8 * energy


@given(SEEDS, st.permutations(range(12)))
def test_the_order_of_batches_matters_to_rounding_alone(seed: int, order: list[int]) -> None:
    x = data(seed, 12 * 7, 5, 5)
    W, stays = data(seed + 1, 3, 5, 5), torch.tensor([0, 2, 3])
    again = torch.cat([x.split(7)[i] for i in order])
    for first, second in zip(
        refitted(x, W, stays, has_bias=True), refitted(again, W, stays, has_bias=True), strict=True
    ):
        torch.testing.assert_close(first, second, rtol=1e-7, atol=1e-9)


def test_nothing_changes_where_nothing_goes() -> None:
    x, W = data(0, 6, 5, 3), data(1, 4, 5, 5)
    V, c = refitted(x, W, torch.arange(5), has_bias=True)
    torch.testing.assert_close(V, W)
    torch.testing.assert_close(c, torch.zeros(4).double())
