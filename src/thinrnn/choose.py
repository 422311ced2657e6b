"""Choosing the neurons that fit a size: the best ones, whole groups never gone."""

import math

import torch
from torch import Tensor

from thinrnn.errors import TargetError
from thinrnn.size import Sizes, What

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
    groups = list(sizes.groups)
    owner, place, score = [], [], []
    masks: Masks = {}
    for g, name in enumerate(groups):
        order = torch.argsort(scores[name].double(), descending=True, stable=True)
        safe = max(1, math.floor(part * len(order)))
        masks[name] = torch.zeros(len(order), dtype=torch.bool)
        masks[name][order[:safe]] = True
        owner.append(torch.full((len(order) - safe,), g))
        place.append(order[safe:])
        score.append(scores[name].double()[order[safe:]])
    owners, places = torch.cat(owner), torch.cat(place)
    ranked = torch.argsort(torch.cat(score), descending=True, stable=True)

    def size(chosen: Masks) -> float:
        return float(sizes.total({n: m.double() for n, m in chosen.items()}, what))

    def first(count: int) -> Masks:
        chosen = {name: mask.clone() for name, mask in masks.items()}
        taken = ranked[:count]
        for g, name in enumerate(groups):
            chosen[name][places[taken[owners[taken] == g]]] = True
        return chosen

    if size(masks) > limit:
        return None
    low, high = 0, len(ranked)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(first(middle)) <= limit else (low, middle - 1)
    chosen = first(low)
    for index in ranked[low : low + 256].tolist():  # fill what the next best one was too large for
        if size(chosen) >= 0.995 * limit:
            break
        name, neuron = groups[int(owners[index])], int(places[index])
        chosen[name][neuron] = True
        if size(chosen) > limit:
            chosen[name][neuron] = False
    return chosen


def _first(size: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(0), size).double()
