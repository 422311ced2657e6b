"""The values at which a model is looked at, and how they are changed."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from thinrnn._discovery.recording import Recording
from thinrnn._layers.base import Layer
from thinrnn._model.tree import Arguments, map_tensors, tensors_in

Quiet = frozenset[str]  # raw tensors that are set to zero
NOBODY: Quiet = frozenset()


class Point:
    """Arguments, values for the layers to return, and what the untouched model does with them.

    In turn 0 they are what the layers returned, moved off special points, where a zero hides a
    factor; then all positive, twice, which shows products of rectified factors; then all negative.
    """

    def __init__(
        self,
        arguments: Arguments,
        layers: Mapping[str, Layer],
        recorded: Mapping[str, list[Any]],
        turn: int,
    ) -> None:
        self.arguments, self.turn = arguments, turn
        self.bases: dict[Quiet, Recording] = {}
        generator = torch.Generator().manual_seed(turn)

        def change(_: str, values: Tensor) -> Tensor:
            if not values.is_floating_point():
                return values
            u = torch.rand(values.shape, generator=generator).to(values)
            if turn == 0:
                return values + torch.where(values >= 0, 0.05, -0.05).to(values) * (1 + u)
            return (1 + u) * (-1.5 if turn == 3 else 1.5)

        self.results = {
            name: [layers[name].edit(result, change) for result in calls]
            for name, calls in recorded.items()
        }


def changed(values: Tensor, mask: Tensor, turn: int) -> Tensor:
    """Return the values, those in `mask` moved far up or down, the other way in the next turn.

    They go beyond the largest in either direction: no activation, clamp or maximum hides it. Half
    of the values of each channel, which is last, go up.
    """
    mask = mask.to(values.device)
    if not values.is_floating_point():
        return values ^ mask if values.dtype == torch.bool else values
    generator = torch.Generator().manual_seed(0)
    channels = values.shape[-1]
    rows = torch.randperm(values.numel() // max(channels, 1), generator=generator)
    shift = torch.randint(2, (channels,), generator=generator) + turn
    way = (rows.view(*values.shape[:-1], 1) + shift) % 2 * 2 - 1
    u = torch.rand(values.shape, generator=generator)
    size = values.nan_to_num(0, 0, 0).abs().max().clamp(min=1) if values.numel() else 1.0
    return torch.where(mask, values + (way * (2 + u)).to(values) * size, values)


def turns(rows: int) -> int:
    """Return how many points to look at, if a feature has so few values to show a change with."""
    return 1 if rows >= 64 else 2 if rows >= 16 else 3 if rows >= 6 else 4


def without_zeros(arguments: Arguments) -> Arguments:
    """Return the arguments with noise in place of zeros: a mask or switch of zeros hides a lot."""
    if not any(_has_zeros(leaf) for leaf in tensors_in(arguments)):
        return arguments
    generator = torch.Generator().manual_seed(0)

    def change(leaf: Tensor) -> Tensor:
        if not _has_zeros(leaf):
            return leaf
        noise = torch.rand(leaf.shape, generator=generator).to(leaf) + 0.5
        return torch.where(leaf == 0, noise, leaf)

    return map_tensors(arguments, change)


def _has_zeros(leaf: Tensor) -> bool:
    return leaf.is_floating_point() and bool((leaf == 0).any())


def with_changed(arguments: Arguments, which: tuple[int, Tensor], turn: int) -> Arguments:
    """Return the arguments with the masked entries of one tensor changed."""
    index, mask = which
    count = iter(range(1 << 30))
    return map_tensors(arguments, lambda t: changed(t, mask, turn) if next(count) == index else t)
