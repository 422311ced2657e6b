"""Which neurons stay within a limit: those worth most in their group for what they cost."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from thinrnn._gates.sizes import Sizes
from thinrnn._penalties.limits import Limits
from thinrnn.errors import TargetError

THRIFT = 0.5  # how much the cost of a neuron counts against its rank in its group
COST_MIXES = 8  # with two limits: ways to weigh the two costs of a neuron that are tried
ENOUGH = 0.99  # of both limits
FILL = 200  # neurons that are tried for what is left of the limit

Masks = dict[str, Tensor]  # group -> True for each neuron that stays


def select_by_worth(
    sizes: Sizes,
    worth: Mapping[str, Tensor],
    limits: Limits,
    *,
    present: Mapping[str, Tensor],
    last: Mapping[str, Tensor],
) -> Masks:
    """Return which neurons stay: only some of those that are present, those in `last` after others.

    With two limits, the costs of a neuron are weighed so that both limits are used up, as far as
    they can be.
    """
    first, *others = limits
    low, high, most_used = 0.0, 1.0, -1.0
    for _ in range(COST_MIXES if others else 1):
        mix = (low + high) / 2
        weight = {first: mix, **dict.fromkeys(others, 1 - mix)}
        scores = _scores(worth, _costs(sizes, limits, weight))
        for name, score in scores.items():
            score[last.get(name, [])] -= 1e6
            is_removed = torch.ones(len(score), dtype=torch.bool)
            is_removed[present[name]] = False
            score[is_removed] = -1e9
        found = select_neurons(sizes, scores, limits)
        counted = {name: mask.double() for name, mask in found.items()}
        used = {what: float(sizes.total(counted, what)) / most for what, most in limits.items()}
        if min(used.values()) > most_used:
            most_used, best = min(used.values()), found
        if most_used > ENOUGH:
            break
        # the limit that is reached decides what is closed: its cost has to count for more
        low, high = (mix, high) if used[first] == max(used.values()) else (low, mix)
    return best


def _scores(worth: Mapping[str, Tensor], costs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return what neurons are worth, relative to their group, for what they cost."""
    usual = torch.cat(list(costs.values())).log().mean()
    scores = {}
    for name, row in worth.items():
        rank = (row - row.mean()) / row.std().clamp(min=1e-9)
        scores[name] = (rank - THRIFT * (costs[name].log() - usual)).nan_to_num(0.0)
    return scores


def _costs(sizes: Sizes, limits: Limits, weight: Limits) -> dict[str, Tensor]:
    """Return which part of what is allowed a neuron of each group takes."""
    parts = [(sizes.neuron_costs(what, most), weight[what]) for what, most in limits.items()]
    return {
        name: torch.stack([costs[name] * share for costs, share in parts]).sum(0)
        for name in sizes.groups
    }


def select_neurons(
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
    wanted = " and ".join(f"{what} {limit:,.6g}" for what, limit in limits.items())
    raise TargetError(f"no choice of neurons has at most {wanted}.")


def _best(sizes: Sizes, scores: dict[str, Tensor], limits: Limits, part: float) -> Masks | None:
    """Return the selection in which each group keeps `part` of its neurons in any case."""
    score = torch.cat([scores[name].double() for name in sizes.groups])  # (N,)
    stays = torch.zeros(len(score), dtype=torch.bool)
    first = 0
    for name, size in sizes.groups.items():
        order = torch.argsort(scores[name].double(), descending=True, stable=True)
        stays[first + order[: max(1, math.floor(part * size))]] = True
        first += size
    rest = (~stays).nonzero().flatten()
    ranked = rest[torch.argsort(score[rest], descending=True, stable=True)]
    now = sizes.lengths(stays.double())  # (A,)
    if not bool(_fits(sizes, now, limits)):
        return None
    # the size after each further neuron, all at once
    lengths = now + sizes.counts[ranked].cumsum(0)  # (n, A)
    fitting = int(_fits(sizes, lengths, limits).sum())
    stays[ranked[:fitting]] = True
    now = lengths[fitting - 1] if fitting else now
    for neuron in ranked[fitting : fitting + FILL].tolist():  # the next best may be too large,
        more = now + sizes.counts[neuron]  # but a smaller one behind it fits
        if bool(_fits(sizes, more, limits)):
            stays[neuron], now = True, more
    return dict(zip(sizes.groups, stays.split(list(sizes.groups.values())), strict=True))


def _fits(sizes: Sizes, lengths: Tensor, limits: Limits) -> Tensor:
    """Return, for each row of lengths, whether a model of these lengths is within the limits."""
    inside = (sizes.size_of(lengths, what) <= limit for what, limit in limits.items())
    return torch.stack(list(inside)).all(0)
