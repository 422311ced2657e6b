"""Which neurons stay within a limit: those worth most in their group for what they cost."""

import math
import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from thinrnn._gates.sizes import Sizes
from thinrnn._penalties.limits import Limits
from thinrnn.errors import TargetError
from thinrnn.plan import Plan

THRIFT = 0.5  # how much the cost of a neuron counts against its rank in its group
COST_MIXES = 8  # with two limits: ways to weigh the two costs of a neuron that are tried
ENOUGH = 0.99  # of both limits
REMOVED = -1e9  # the score of neurons that are gone
READS_LAYER = re.compile(r"(?P<module>.*?)\.?(?P<kind>weight_h[hr])_l\d+(_reverse)?$")
FILL = 200  # neurons that are tried for what is left of the limit

Masks = dict[str, Tensor]  # group -> True for each neuron that stays


def select_by_worth(
    sizes: Sizes,
    worth: Mapping[str, Tensor],
    limits: Limits,
    *,
    present: Mapping[str, Tensor],
    last: Mapping[str, Tensor],
    equal: Sequence[Sequence[str]] = (),
) -> Masks:
    """Return which neurons stay: only some of those that are present, those in `last` after others.

    With two limits, the costs of a neuron are weighed so that both limits are used up, as far as
    they can be. The groups in each entry of `equal` keep as many neurons as one another.
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
            score[is_removed] = REMOVED
        for groups in equal:
            _rank_together(scores, groups)
        found = select_neurons(sizes, scores, limits)
        if equal:
            found = _equalized(sizes, scores, found, limits, equal)
        counted = {name: mask.double() for name, mask in found.items()}
        used = {what: float(sizes.total(counted, what)) / most for what, most in limits.items()}
        if min(used.values()) > most_used:
            most_used, best = min(used.values()), found
        if most_used > ENOUGH:
            break
        # the limit that is reached decides what is closed: its cost has to count for more
        low, high = (mix, high) if used[first] == max(used.values()) else (low, mix)
    return best


def equal_sets(plan: Plan) -> list[list[str]]:
    """Return the groups that are layers and directions of one recurrent module, or their cells."""
    sets: dict[tuple[str, str], list[str]] = {}
    for group in plan.groups:
        for s in group.slices:
            found = READS_LAYER.match(s.parameter)
            if found and s.dim == 1:
                names = sets.setdefault((found["module"], found["kind"]), [])
                names += [] if group.name in names else [group.name]
    return [names for names in sets.values() if len(names) > 1]


def _rank_together(scores: dict[str, Tensor], groups: Sequence[str]) -> None:
    """Give the best neurons of all groups the same score, and the second best, and so on."""
    orders = [scores[name].argsort(descending=True, stable=True) for name in groups]
    count = min(map(len, orders))
    ranked = [scores[name][order[:count]] for name, order in zip(groups, orders, strict=True)]
    together = torch.stack(ranked).mean(0)
    for name, order in zip(groups, orders, strict=True):
        scores[name][order[:count]] = together
        scores[name][order[count:]] = REMOVED


def _equalized(
    sizes: Sizes,
    scores: Mapping[str, Tensor],
    found: Masks,
    limits: Limits,
    equal: Sequence[Sequence[str]],
) -> Masks:
    """Return a selection with as many neurons in all groups of a set, and the rest filled up."""

    def fits(masks: Masks) -> bool:
        row = torch.cat([masks[name] for name in sizes.groups]).double()
        return bool(_fits(sizes, sizes.lengths(row), limits))

    def best(groups: Sequence[str], count: int) -> Masks:
        masks = {}
        for name in groups:
            order = scores[name].argsort(descending=True, stable=True)
            masks[name] = torch.zeros(len(order), dtype=torch.bool).index_fill_(0, order[:count], 1)
        return masks

    counts = [min(int(found[name].sum()) for name in groups) for groups in equal]
    for groups, count in zip(equal, counts, strict=True):
        found = found | best(groups, count)
    for groups, count in zip(equal, counts, strict=True):
        most = min(int((scores[name] > REMOVED / 2).sum()) for name in groups)
        while count < most and fits(found | best(groups, count + 1)):
            count += 1
            found = found | best(groups, count)
    fixed = {name for groups in equal for name in groups}
    closed = [
        (float(scores[name][neuron]), name, int(neuron))
        for name in sizes.groups
        if name not in fixed
        for neuron in (~found[name] & (scores[name] > REMOVED / 2)).nonzero()
    ]
    for _, name, neuron in sorted(closed, reverse=True)[:FILL]:
        more = found[name].clone()
        more[neuron] = True
        if fits(found | {name: more}):
            found = found | {name: more}
    return found


def _scores(worth: Mapping[str, Tensor], costs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return what neurons are worth, relative to their group, for what they cost."""
    usual = torch.cat(list(costs.values())).log().mean()
    scores = {}
    for name, row in worth.items():
        spread = row.std().clamp(min=1e-9) if len(row) > 1 else 1.0
        rank = (row - row.mean()) / spread
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
