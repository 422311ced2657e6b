"""The median rule compares a trial with those that are no larger, at the same epoch."""

import math

import pytest

pytest.importorskip("optuna", reason="needs the extra sweep")

from thinrnn.lab.sweep.median import Standing, falls_behind

OTHERS = [{epoch: Standing(10.0 + n, 100.0) for epoch in range(1, 9)} for n in range(5)]


@pytest.mark.parametrize(
    ("epoch", "loss", "params", "stops"),
    [
        (4, 12.5, 100.0, True),
        (4, 12.0, 100.0, False),  # the median itself
        (4, 12.5, 90.0, False),  # smaller than all others
        (4, 12.5, 500.0, True),  # larger and worse
        (2, 12.5, 100.0, False),  # too early
        (4, math.nan, 100.0, True),
        (9, 99.0, 100.0, False),  # where no other one was
    ],
)
def test_who_is_stopped(epoch: int, loss: float, params: float, stops: bool) -> None:
    assert falls_behind(epoch, 8, Standing(loss, params), OTHERS) is stops


def test_too_few_to_compare_with() -> None:
    assert not falls_behind(4, 8, Standing(99.0, 100.0), OTHERS[:4])
