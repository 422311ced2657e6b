"""From neurons that can only go together to the groups of a plan, and why some have to stay.

A matrix that is read along both dimensions (`widen(x)`, and `F.linear(h, widen.weight.t())`) needs
a choice, because a gate acts on one dimension. The neurons along the other need no gate there if
they are gated wherever they are made: an embedding that is also the output layer returns zeros for
a closed neuron. The trial cut proves it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from thinrnn._discovery.probe import Source
from thinrnn._discovery.raw_tensors import RawTensor
from thinrnn._discovery.states import ReturnedEntry
from thinrnn._layers.base import Layer
from thinrnn._layers.norms import NormLayer, parts_of
from thinrnn.group import Group, NormSlice, Slice, State
from thinrnn.plan import Refusal

Element = tuple[str, str, int]  # (layer, space, channel)
Place = tuple[int, int]  # (tensor, dimension)
MOST_OF_A_SPACE = 8  # neurons of one layer that may be tied into one (a GLU ties two)
ARGUMENT = "the caller"  # in place of the layer, in elements that are entries of an argument


class Neurons:
    """Joins elements that go together (a union-find) and notes which have to stay."""

    def __init__(self) -> None:
        self._parent: dict[Element, Element] = {}
        self._stays: dict[Element, str] = {}

    def add(self, element: Element) -> None:
        """Add an element; `sets` returns elements in the order in which they were added."""
        self._parent.setdefault(element, element)

    def join(self, a: Element, b: Element) -> None:
        """Join two elements: they are kept or removed together."""
        a, b = self._root(a), self._root(b)
        if a != b:
            self._parent[b] = a

    def keep(self, elements: Iterable[Element], reason: str) -> None:
        """Mark elements, and all that are joined with them, as staying; the first reason counts."""
        for element in elements:
            self._stays.setdefault(element, reason)

    def sets(self) -> list[tuple[list[Element], str]]:
        """Return joined elements, each set with the reason why it has to stay, or an empty text."""
        members: dict[Element, list[Element]] = defaultdict(list)
        for element in self._parent:
            members[self._root(element)].append(element)
        reasons: dict[Element, str] = {}
        for element, reason in self._stays.items():
            reasons.setdefault(self._root(element), reason)
        return [(found, reasons.get(root, "")) for root, found in members.items()]

    def _root(self, element: Element) -> Element:
        self.add(element)
        while self._parent[element] != element:
            self._parent[element] = self._parent[self._parent[element]]
            element = self._parent[element]
        return element


def collect(
    neurons: Neurons, layers: Mapping[str, Layer], undeclared: Mapping[Source, list[str]]
) -> tuple[list[Group], list[Refusal]]:
    """Return groups and refusals; neurons with the same producers form one group."""
    buckets: dict[tuple[str, str, tuple[Source, ...]], list[list[Element]]] = defaultdict(list)
    for members, reason in neurons.sets():
        owners = dict.fromkeys((layer, space) for layer, space, _ in members)
        makers = tuple(source for source in owners if _makes(layers, *source))
        if not any(
            name in layers and not isinstance(layers[name], (RawTensor, ReturnedEntry))
            for name, _ in owners
        ):
            continue
        reason = reason or _tied_too_much(layers, members) or _out_of_reach(layers, members, makers)
        buckets[_name(layers, members, makers), reason, makers].append(members)
    groups, refused = [], []
    for (name, reason, makers), sets in buckets.items():
        group = _group(layers, name, sets)
        if not reason and makers and not _is_read_by_others(group):
            reason = "no layer reads it"
        if reason and makers:
            raw = tuple(dict.fromkeys(p for s in makers for p in undeclared.get(s, ())))
            refused.append(Refusal(group, reason, raw))
        elif not reason:
            groups.append(group)
    return _uniquely_named(groups), refused


def _makes(layers: Mapping[str, Layer], layer: str, space: str) -> bool:
    """Whether a space produces neurons, rather than reading them."""
    return layer != ARGUMENT and space != "input" and not isinstance(layers[layer], RawTensor)


def _name(layers: Mapping[str, Layer], members: list[Element], makers: tuple[Source, ...]) -> str:
    if makers:
        return "+".join(layers[name].label(space) for name, space in makers)
    arguments = dict.fromkeys(space for layer, space, _ in members if layer == ARGUMENT)
    readers = (layers[name].label(space) for name, space, _ in members if name != ARGUMENT)
    return "+".join(arguments) or next(readers)


def _tied_too_much(layers: Mapping[str, Layer], members: list[Element]) -> str:
    tied: dict[Source, int] = defaultdict(int)
    for name, space, _ in members:
        tied[name, space] += _makes(layers, name, space)
    (name, space), most = max(tied.items(), key=lambda item: item[1])
    parts = max((parts_of(layers[n].module) for n, *_ in members if n != ARGUMENT), default=1)
    limit = min(max(MOST_OF_A_SPACE, parts), layers[name].spaces[space].size // 2)
    if most > 1 and most > limit:
        return f"{most} neurons of '{layers[name].label(space)}' can only go together"
    return ""


def _out_of_reach(
    layers: Mapping[str, Layer], members: list[Element], makers: tuple[Source, ...]
) -> str:
    """Return why features that no layer makes cannot be picked where they are read."""
    readers = [layers[name] for name, *_ in members if name != ARGUMENT]
    others = [one for one in readers if not (one.is_plain or isinstance(one, ReturnedEntry))]
    return (
        f"'{others[0].name}' is not called like the class that it extends"
        if others and not makers
        else ""
    )


def _group(layers: Mapping[str, Layer], name: str, sets: list[list[Element]]) -> Group:
    places: dict[tuple[str, int, str], dict[tuple[int, int], None]] = defaultdict(dict)
    entries: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    norms: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for neuron, members in enumerate(sets):
        for layer, space, channel in members:
            if layer == ARGUMENT:
                continue
            if isinstance(layers[layer], ReturnedEntry):
                entries[layer][0].append(channel)
                entries[layer][1].append(neuron)
            if isinstance(layers[layer], NormLayer):
                norms[layer][0].append(channel)
                norms[layer][1].append(neuron)
            for slot in layers[layer].spaces[space].slots:
                key = (layers[layer].full_name(slot.parameter), slot.dim, slot.role)
                places[key] |= dict.fromkeys((at, neuron) for at in slot.positions(channel))
    slices = (
        Slice.of(parameter, dim, role, *torch.tensor(list(owned)).T)  # type: ignore[arg-type]
        for (parameter, dim, role), owned in places.items()
    )
    states = []
    for layer, (p, n) in entries.items():
        entry = layers[layer]
        assert isinstance(entry, ReturnedEntry)
        place = (entry.path, entry.argument, entry.axis)
        states.append(State.of(*place, torch.tensor(p), torch.tensor(n)))
    through = tuple(
        NormSlice.of(layer, torch.tensor(p), torch.tensor(n)) for layer, (p, n) in norms.items()
    )
    return Group(name, len(sets), tuple(slices), states=tuple(states), norms=through)


def _is_read_by_others(group: Group) -> bool:
    """Whether anything but the recurrence of the neurons themselves reads them."""
    made = {(s.parameter, s.dim) for s in group.slices if s.role == "produce"}
    own = {parameter for parameter, dim in made}
    return any(
        s.role == "read" and (s.parameter not in own or (s.parameter, s.dim) in made)
        for s in group.slices
    )


def _uniquely_named(groups: list[Group]) -> list[Group]:
    seen: dict[str, int] = defaultdict(int)
    named = []
    for group in groups:
        seen[group.name] += 1
        again = seen[group.name]
        name = group.name if again == 1 else f"{group.name}#{again}"
        named.append(replace(group, name=name))
    return named


def read_one_way(
    groups: Sequence[Group], tensors: Mapping[str, Tensor]
) -> tuple[list[Group], list[Refusal]]:
    """Return the groups with each tensor read along one dimension, and those refused for it."""
    kept = list(groups)
    refused = []
    for tensor in dict.fromkeys(id(t) for t in tensors.values()):
        name = next(n for n, t in tensors.items() if id(t) == tensor)
        dims = sorted({d for g in kept for t, d in places(g, "read", tensors) if t == tensor})
        # Dimensions that need no gate come first; the last one keeps its gates.
        dims.sort(key=lambda dim: not _can_do_without((tensor, dim), kept, tensors))
        for dim in dims[:-1]:
            place = (tensor, dim)
            if _can_do_without(place, kept, tensors):
                kept = [_without_gate(group, place, tensors) for group in kept]
            else:
                gone = [g for g in kept if place in places(g, "read", tensors)]
                reason = f"'{name}' is read along two dimensions"
                refused += [Refusal(group, reason) for group in gone]
                kept = [group for group in kept if group not in gone]
    return kept, refused


def places(group: Group, role: str, tensors: Mapping[str, Tensor]) -> set[Place]:
    """Return where a group produces or reads, by tensor and dimension."""
    return {(id(tensors[s.parameter]), s.dim) for s in group.slices if s.role == role}


def _can_do_without(place: Place, groups: Sequence[Group], tensors: Mapping[str, Tensor]) -> bool:
    """Whether all neurons that are read at a place come from where they are gated."""
    for group in groups:
        reads = places(group, "read", tensors) - {place}
        made = places(group, "produce", tensors) - {place}
        if place in places(group, "read", tensors) and (not made or not made <= reads):
            return False
    return True


def _without_gate(group: Group, place: Place, tensors: Mapping[str, Tensor]) -> Group:
    """Return the group that still owns its positions at a place, but no longer gates them."""
    slices = [
        replace(s, role="produce") if (id(tensors[s.parameter]), s.dim) == place else s
        for s in group.slices
    ]
    return replace(group, slices=tuple(dict.fromkeys(slices)))
