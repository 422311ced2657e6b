"""What may help where a trial cut fails: attributes that follow the size, or parts kept equal."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import combinations, islice, product
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from thinrnn._layers.registry import layer_of
from thinrnn._model.isolation import run
from thinrnn._model.tree import Arguments
from thinrnn.group import Group, NormSlice, Runs, SizeAttribute, Slice, State, runs_of

PARTS = (2, 3, 4)  # equal parts of a group that the code may need to stay equal
TIMES = (1, 2, 3, 4)  # an attribute may be a multiple: both directions, the gates of a cell
MOST_TOGETHER = 2  # attributes that one group sets, beside all that are likely
MOST_LIKELY = 4  # attributes of one size that are tried
MOST_RAW = 16  # ways to cut raw tensors along with a group that are tried

Part = TypeVar("Part", Slice, State, NormSlice)
Alternative = tuple[Group, set[str]]  # a group to try, and the names of those it is made of


def alternatives(groups: list[Group], numbers: Mapping[str, int]) -> Iterator[Alternative]:
    """Yield what to try in place of groups that failed, those that tie the fewest neurons first."""
    for group in groups:
        for changed in _with_attributes(group, numbers):
            yield changed, {group.name}
    together = list(_with_equal_parts(groups))
    yield from together
    for joined, members in (*together, *_of_one_attribute(groups, numbers)):
        for changed in _with_attributes(joined, numbers):
            yield changed, members


def with_raws(group: Group, raws: Mapping[str, Tensor]) -> Iterator[Group]:
    """Yield the group with raw tensors cut along; in `(h * scale) @ vector` the vector reads it.

    The others multiply or add element by element. The last one reads the neurons, or an earlier
    one, or all of them do, as in two attention heads.
    """
    places = {name: list(_blocks(group, tensor)) for name, tensor in raws.items()}
    names = [name for name, own in places.items() if own]
    tries = (
        (dict(zip(used, spots, strict=True)), runs, readers)
        for count in range(len(names), 0, -1)
        for used in combinations(names, count)
        for spots in product(*(places[name] for name in used))
        for runs in _runs(group.size, {blocks for _, blocks in spots})
        for readers in dict.fromkeys((*((name,) for name in reversed(used)), used))
    )
    for spots, runs, readers in islice(tries, MOST_RAW):
        slices = (
            Slice(name, dim, "read" if name in readers else "produce", runs[blocks])
            for name, (dim, blocks) in spots.items()
        )
        yield replace(group, slices=(*group.slices, *slices))


def _blocks(group: Group, tensor: Tensor) -> Iterator[tuple[int, int]]:
    """Yield dimensions that a group may own, in all or a part of so many blocks of its size."""
    for dim, length in enumerate(tensor.shape):
        if group.size > 1 and length % group.size == 0:
            yield dim, length // group.size


def _runs(size: int, numbers: set[int]) -> Iterator[dict[int, Runs]]:
    """Yield, for each number of blocks of a size, those that may be a group's, equally far apart.

    A vector may read the features of two directions, and their products beside them.
    """
    choices = [
        [
            tuple((b * size, 0, size) for b in range(first, blocks, step))
            for step in range(1, blocks + 1)
            if blocks % step == 0
            for first in range(step)
        ]
        for blocks in numbers
    ]
    for chosen in product(*choices):
        yield dict(zip(numbers, chosen, strict=True))


def numbers_read(model: nn.Module, examples: Iterable[Arguments]) -> dict[str, int]:
    """Return the integers that the model's own code reads from attributes of its modules."""
    read: dict[str, int] = {}
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if _has_own_code(name, module, model):
                stack.enter_context(_noting(module, f"{name}." if name else "", read))
        for arguments in examples:
            run(model, arguments)
    return read


def _has_own_code(name: str, module: nn.Module, model: nn.Module) -> bool:
    """Whether a module is the user's, so that nothing but this changes its numbers."""
    is_torchs = type(module).__module__.startswith("torch.")
    return not is_torchs and layer_of(name, module, model) is None


@contextmanager
def _noting(module: nn.Module, prefix: str, read: dict[str, int]) -> Iterator[None]:
    """Note each integer that is read from a module's own attributes."""
    kind = type(module)

    def note(self: Any, name: str) -> Any:
        value = kind.__getattribute__(self, name)
        if type(value) is int and not name.startswith("_") and name in self.__dict__:
            read[prefix + name] = value
        return value

    own = {"__getattribute__": note, "__module__": kind.__module__}
    module.__class__ = type(kind.__name__, (kind,), own)
    try:
        yield
    finally:
        module.__class__ = kind


def _with_attributes(group: Group, numbers: Mapping[str, int]) -> Iterator[Group]:
    """Yield the group with attributes that follow its size, as few as possible first."""
    likely = list(_likely(group, numbers))[:MOST_LIKELY]
    for count in sorted({*range(1, MOST_TOGETHER + 1), len(likely)}):
        for chosen in combinations(likely, count):
            yield replace(group, sets=chosen)


def _likely(group: Group, numbers: Mapping[str, int]) -> Iterator[SizeAttribute]:
    for times in TIMES:
        for name, value in numbers.items():
            if value == times * group.size:
                yield SizeAttribute(name, times)


def _of_one_attribute(groups: list[Group], numbers: Mapping[str, int]) -> Iterator[Alternative]:
    """Yield groups of one size joined into one, where an attribute may be the size of all."""
    by_size: dict[int, list[Group]] = defaultdict(list)
    for group in groups:
        by_size[group.size].append(group)
    for size, own in by_size.items():
        if len(own) > 1 and any(_likely(own[0], numbers)):
            yield _merged(_joined_name(own), size, own), {group.name for group in own}


def _with_equal_parts(groups: list[Group]) -> Iterator[Alternative]:
    """Yield groups in which more neurons go together."""
    alike = list(_alike(groups))
    alike += [own for own in _side_by_side(groups) if own not in alike]
    for own in alike:
        yield _merged(_joined_name(own), own[0].size, own), {group.name for group in own}
    for own in (*([group] for group in groups), *alike):
        for parts in PARTS:
            if (size := own[0].size) % parts == 0 and size > parts:
                members = {group.name for group in own}
                yield _merged(_joined_name(own), size // parts, own), members
                if sum(len(group.owners("produce")) for group in own) > 1:  # shuffled
                    yield _merged(_joined_name(own), size // parts, own, next_to=parts), members


def _joined_name(groups: list[Group]) -> str:
    return "+".join(group.name for group in groups)


def _alike(groups: list[Group]) -> Iterator[list[Group]]:
    """Yield groups of one size that share parameters, such as the layers of an RNN."""
    while groups:
        own, rest = [groups[0]], groups[1:]
        names = {s.parameter for s in own[0].slices}
        while met := [g for g in rest if g.size == own[0].size and _meets(g, names)]:
            own += met
            names |= {s.parameter for group in met for s in group.slices}
            rest = [group for group in rest if group not in met]
        if len(own) > 1:
            yield own
        groups = rest


def _side_by_side(groups: list[Group]) -> Iterator[list[Group]]:
    """Yield groups of one size that modules of one list make, each from a part of the features."""
    lists: dict[tuple[int, str], list[Group]] = defaultdict(list)
    for group in groups:
        for made_in in dict.fromkeys(owner.rpartition(".")[0] for owner in group.owners("produce")):
            lists[group.size, made_in].append(group)
    yield from (own for own in lists.values() if len(own) > 1)


def _meets(group: Group, parameters: set[str]) -> bool:
    return any(s.parameter in parameters for s in group.slices)


def _merged(name: str, size: int, groups: list[Group], next_to: int = 0) -> Group:
    """Return a group in which neurons go together whose numbers agree modulo `size`.

    With `next_to` as many go together that follow one another.
    """

    def joined(parts: Iterable[Part]) -> tuple[Part, ...]:
        owned: dict[Part, dict[int, int]] = defaultdict(dict)
        for part in parts:
            positions, neurons = (index.tolist() for index in part.index())
            numbers = (n // next_to if next_to else n % size for n in neurons)
            owned[replace(part, runs=())].update(zip(positions, numbers, strict=True))
        return tuple(
            replace(part, runs=runs_of(torch.tensor(list(own)), torch.tensor(list(own.values()))))
            for part, own in owned.items()
        )

    return Group(
        name,
        size,
        joined(s for group in groups for s in group.slices),
        states=joined(s for group in groups for s in group.states),
        norms=joined(norm for group in groups for norm in group.norms),
    )
