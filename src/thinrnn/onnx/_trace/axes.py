"""Find by trial which axes of the inputs may change their size.

An axis is one size in several places: the batch is an axis of the tokens, of the lengths and of
every state. Axes are found by calling the model with longer inputs.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

Place = tuple[int, int]  # which tensor, which of its dimensions
# The shapes that a model has inside and at its end for some inputs; None if it does not take them.
Shapes = Callable[[Sequence[Tensor]], Any]
MOST_TRIALS = 200


@dataclass(frozen=True)
class DynamicAxis:
    """A size that the caller may choose, and the places where it occurs."""

    name: str
    size: int  # in the example
    places: tuple[Place, ...]


def find_axes(tensors: Sequence[Tensor], shapes_at: Shapes) -> list[DynamicAxis]:
    """Return the axes of a model's inputs.

    An axis is the smallest set of places that can be made longer together so that some shape
    inside the model or of its outputs changes; or, if none does, the smallest that can be at all.
    """
    axes: list[DynamicAxis] = []
    done: set[Place] = set()
    before = shapes_at(tensors)
    for place, size in _places(tensors):
        if place in done:
            continue
        found: tuple[Place, ...] | None = None
        for places in itertools.islice(_together(tensors, place, size, done), MOST_TRIALS):
            after = shapes_at(resized(tensors, {DynamicAxis("", size, places): 2 * size}))
            if after is not None and (found is None or after != before):
                found = places
            if after is not None and after != before:
                break
        if found is not None:
            axes.append(DynamicAxis(f"axis{len(axes)}", size, found))
            done.update(found)
    return axes


def named(
    axes: list[DynamicAxis], names: dict[int, str], sizes: dict[DynamicAxis, int]
) -> list[DynamicAxis]:
    """Return the axes with the names that belong to their present sizes.

    Two sequences of unequal length are two axes, "time" and "time_2".
    """
    found: list[DynamicAxis] = []
    for axis in axes:
        name = names.get(sizes[axis], axis.name)
        same = sum(other.name.partition("_")[0] == name for other in found)
        found.append(replace(axis, name=f"{name}_{same + 1}" if same else name))
    return found


def distinct_sizes(
    axes: list[DynamicAxis], tensors: Sequence[Tensor], shapes_at: Shapes
) -> dict[DynamicAxis, int]:
    """Return sizes, all different and none of them 1, with which the model runs.

    A tracer treats sizes that are equal, or 1, as fixed by the model.
    """
    sizes: dict[DynamicAxis, int] = {}
    for axis in axes:
        for factor in range(2, 12):
            size = axis.size * factor
            wanted = {**sizes, axis: size}
            if size not in sizes.values() and shapes_at(resized(tensors, wanted)):
                sizes = wanted
                break
        else:
            sizes[axis] = axis.size
    return sizes


def resized(tensors: Sequence[Tensor], sizes: dict[DynamicAxis, int]) -> list[Tensor]:
    """Return inputs with other sizes, made of the same values; lengths are scaled with them."""
    changed = list(tensors)
    for axis, size in sizes.items():
        for which, dim in axis.places:
            index = torch.arange(size) % tensors[which].shape[dim]
            changed[which] = changed[which].index_select(dim, index)
    for place, tensor in enumerate(tensors):
        if tensor.is_floating_point() or tensor.dtype == torch.bool or tensor.dim() != 1:
            continue
        for axis, size in sizes.items():
            elsewhere = all(which != place for which, _ in axis.places)
            if elsewhere and int(tensor.max()) == axis.size:  # lengths: the longest fills the axis
                lengths = (changed[place] * size / axis.size).ceil().to(tensor.dtype)
                lengths[lengths.argmax()] = size
                changed[place] = lengths
        if torch.equal(tensor, tensor.sort(descending=True).values):
            changed[place] = changed[place].sort(descending=True).values
    return changed


def varied(tensors: Sequence[Tensor], seed: int) -> list[Tensor]:
    """Return the inputs with noise on fractional values, so that no two rows are equal."""
    generator = torch.Generator().manual_seed(seed)
    changed = []
    for tensor in tensors:
        if tensor.is_floating_point() and not torch.equal(tensor, tensor.round()):
            noise = torch.randn(tensor.shape, generator=generator)
            tensor = tensor + 0.1 * tensor.std(unbiased=False) * noise
        changed.append(tensor)
    return changed


def nudged(tensors: Sequence[Tensor], seed: int) -> list[Tensor]:
    """Return the inputs with noise in the last digit of fractional values."""
    generator = torch.Generator().manual_seed(seed)
    return [
        t + torch.finfo(t.dtype).eps * t * torch.randn(t.shape, generator=generator)
        if t.is_floating_point()
        else t
        for t in tensors
    ]


def _places(tensors: Sequence[Tensor]) -> Iterator[tuple[Place, int]]:
    for which, tensor in enumerate(tensors):
        for dim, size in enumerate(tensor.shape):
            yield (which, dim), size


def _together(
    tensors: Sequence[Tensor], place: Place, size: int, done: set[Place]
) -> Iterator[tuple[Place, ...]]:
    """Yield the sets of places that may form the axis of `place`, smallest first."""
    choices: list[list[Place | None]] = []
    for which, tensor in enumerate(tensors):
        if which != place[0]:
            here = [(which, d) for d, s in enumerate(tensor.shape) if s == size]
            choices.append([None, *(p for p in here if p not in done)])
    sets = [tuple(p for p in chosen if p) for chosen in itertools.product(*choices)]
    for others in sorted(sets, key=len):
        yield tuple(sorted((place, *others)))
