"""Choosing the neurons that fit a size: the best ones, whole groups never gone."""

import math

import torch
from torch import Tensor

from thinrnn.errors import TargetError
from thinrnn.size import Sizes, What

FILL = 200  # neurons that are tried for what is left of the limit
Masks = dict[str, Tensor]  # group -> True for each neuron that stays


def budget(sizes: Sizes, *, params: float | None, macs: float | None) -> tuple[What, float, float]:
    """Return what is counted, the full size, and the size that is asked for."""
    if (params is None) == (macs is None):
        raise TargetError("give one of params= and macs=: a fraction up to 1, or a number.")
    what: What = "params" if params is not None else "macs"
    wanted = params if params is not None else macs
    assert wanted is not None
    full = float(sizes.total(sizes.all_present(), what))
    goal = wanted * full if 0 < wanted <= 1 else float(wanted)
    smallest = float(sizes.total({g: _first(n) for g, n in sizes.groups.items()}, what))
    if not smallest <= goal:
        raise TargetError(
            f"{what}={wanted:g} cannot be met: with one neuron left in each group the model still "
            f"has {smallest:,.0f} of {full:,.0f} {what}. Ask for more, or gate more groups."
        )
    return what, full, min(goal, full)


def choose(
    sizes: Sizes, scores: dict[str, Tensor], limit: float, what: What, *, least: float = 0.25
) -> Masks:
    """Return the neurons with the highest scores whose size is at most `limit`.

    Each group keeps `least` of the share that it would have if all groups shrank alike, and one
    neuron in any case, so that no group collapses.
    """
    share = limit / float(sizes.total(sizes.all_present(), what))
    for part in (least * share, 0.0):
        found = _best(sizes, scores, limit, what, part)
        if found is not None:
            return found
    raise TargetError(f"no choice of neurons has at most {limit:,.0f} {what}.")


def _best(
    sizes: Sizes, scores: dict[str, Tensor], limit: float, what: What, part: float
) -> Masks | None:
    """Return the choice in which each group keeps `part` of its neurons whatever their scores."""
    score = torch.cat([scores[name].double() for name in sizes.groups])  # (N,)
    safe = torch.zeros(len(score), dtype=torch.bool)
    first = 0
    for name, size in sizes.groups.items():
        order = torch.argsort(scores[name].double(), descending=True, stable=True)
        safe[first + order[: max(1, math.floor(part * size))]] = True
        first += size
    rest = (~safe).nonzero().flatten()
    ranked = rest[torch.argsort(score[rest], descending=True, stable=True)]
    start = sizes.lengths(safe.double())  # (A,)
    if float(sizes.size_of(start, what)) > limit:
        return None
    # the size after each further neuron, all at once
    lengths = start + sizes.counts[ranked].cumsum(0)  # (n, A)
    fitting = int((sizes.size_of(lengths, what) <= limit).sum())
    chosen = safe.clone()
    chosen[ranked[:fitting]] = True
    now = lengths[fitting - 1] if fitting else start
    for neuron in ranked[fitting : fitting + FILL].tolist():  # the next best may be too large,
        more = now + sizes.counts[neuron]  # but a smaller one behind it fits
        if float(sizes.size_of(more, what)) <= limit:
            chosen[neuron], now = True, more
    return dict(zip(sizes.groups, chosen.split(list(sizes.groups.values())), strict=True))


def _first(size: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(0), size).double()
