"""Choosing the neurons that fit a size: the best ones, whole groups never gone."""

import math

import torch
from torch import Tensor

from thinrnn._penalties.sizes import Sizes, What
from thinrnn.errors import TargetError

FILL = 200  # neurons that are tried for what is left of the limit
Masks = dict[str, Tensor]  # group -> True for each neuron that stays
Limits = dict[What, float]  # parameters, mult-adds, or both


def budget(sizes: Sizes, *, params: float | None, macs: float | None) -> tuple[Limits, Limits]:
    """Return the full sizes and the sizes that are asked for, of whatever is limited."""
    asked: dict[What, float | None] = {"params": params, "macs": macs}
    if params is None and macs is None:
        raise TargetError("give params= or macs= or both: a fraction up to 1, or a number.")
    full: Limits = {}
    goal: Limits = {}
    for what, wanted in asked.items():
        if wanted is None:
            continue
        full[what] = float(sizes.total(sizes.all_present(), what))
        limit = wanted * full[what] if 0 < wanted <= 1 else float(wanted)
        smallest = float(sizes.total({g: _first(n) for g, n in sizes.groups.items()}, what))
        if not smallest <= limit:
            raise TargetError(
                f"{what}={wanted:g} cannot be met: with one neuron left in each group the model "
                f"still has {smallest:,.0f} of {full[what]:,.0f} {what}. Ask for more, or gate "
                "more groups."
            )
        goal[what] = min(limit, full[what])
    return full, goal


def choose(
    sizes: Sizes, scores: dict[str, Tensor], limits: Limits, *, least: float = 0.25
) -> Masks:
    """Return the neurons with the highest scores whose size is within the limits.

    Each group keeps `least` of the share that it would have if all groups shrank alike, and one
    neuron in any case, so that no group collapses.
    """
    everybody = sizes.all_present()
    share = min(limit / float(sizes.total(everybody, what)) for what, limit in limits.items())
    for part in (least * share, 0.0):
        found = _best(sizes, scores, limits, part)
        if found is not None:
            return found
    asked = " and ".join(f"{limit:,.0f} {what}" for what, limit in limits.items())
    raise TargetError(f"no choice of neurons has at most {asked}.")


def _best(sizes: Sizes, scores: dict[str, Tensor], limits: Limits, part: float) -> Masks | None:
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
    if not bool(_fits(sizes, start, limits)):
        return None
    # the size after each further neuron, all at once
    lengths = start + sizes.counts[ranked].cumsum(0)  # (n, A)
    fitting = int(_fits(sizes, lengths, limits).sum())
    chosen = safe.clone()
    chosen[ranked[:fitting]] = True
    now = lengths[fitting - 1] if fitting else start
    for neuron in ranked[fitting : fitting + FILL].tolist():  # the next best may be too large,
        more = now + sizes.counts[neuron]  # but a smaller one behind it fits
        if bool(_fits(sizes, more, limits)):
            chosen[neuron], now = True, more
    return dict(zip(sizes.groups, chosen.split(list(sizes.groups.values())), strict=True))


def _fits(sizes: Sizes, lengths: Tensor, limits: Limits) -> Tensor:
    """Return, for each row of lengths, whether a model of these lengths is within the limits."""
    inside = (sizes.size_of(lengths, what) <= limit for what, limit in limits.items())
    return torch.stack(list(inside)).all(0)


def _first(size: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(0), size).double()
