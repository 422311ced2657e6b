import math

import pytest

from thinrnn.lab.recipes.schedule import has_stalled, lr_factor


def test_decay_is_flat_and_then_cut_at_regular_epochs():
    factors = [
        lr_factor("decay", step=0, steps=1, epoch=e, decay=0.1, decay_from=2, decay_every=3)
        for e in range(9)
    ]
    assert factors == pytest.approx([1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.001])


def test_cosine_goes_from_one_to_nothing():
    factors = [lr_factor("cosine", step=s, steps=10, epoch=0) for s in range(10)]
    assert factors[0] == 1 and factors == sorted(factors, reverse=True) and factors[-1] < 0.03


def test_warm_up_rises_to_the_full_rate():
    factors = [lr_factor("constant", step=s, steps=10, epoch=0, warmup=3) for s in range(6)]
    assert factors == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])


def test_averaging_starts_when_the_loss_is_worse_than_the_best_but_for_the_last_five():
    assert not has_stalled([5.0] * 5, 9.0, window=5)  # too few values to judge
    assert has_stalled([4.0, 5, 5, 5, 5, 5], 4.5, window=5)
    assert not has_stalled([4.0, 5, 5, 5, 5, 5], 3.9, window=5)
    assert not has_stalled([], math.nan, window=5)
