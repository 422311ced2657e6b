"""The median rule: which trials are stopped before their end.

Optuna's own rules work for one objective only. This one looks at the first, the quality, and is
fair to small models: a trial is compared with those that had no more parameters at that epoch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

ENOUGH = 5  # trials to compare with
GRACE = 0.25  # part of the epochs in which no trial is stopped
ROOM = 1.02  # parameters of a trial that counts as equally large


@dataclass(frozen=True)
class Standing:
    """How a trial stands at an epoch: its loss (less is better) and its parameters."""

    loss: float
    params: float


Curve = Mapping[int, Standing]  # by epoch


def falls_behind(epoch: int, epochs: int, point: Standing, others: Iterable[Curve]) -> bool:
    """Return whether a trial is worse than the median of those that are no larger.

    Args:
        epoch: The epoch that is over, from 1.
        epochs: How many the trial has.
        point: Where the trial is.
        others: The finished trials.
    """
    if epoch <= GRACE * epochs:
        return False
    there = (curve[epoch] for curve in others if epoch in curve)
    losses = [other.loss for other in there if other.params <= ROOM * point.params]
    return len(losses) >= ENOUGH and not point.loss <= median(losses)
