"""States that the caller gets and gives back: what is returned, but need not keep its width.

    state_in.h ──▶ [lstm] ──▶ [head] ──▶ action
                      └──────────────▶ state_out.h ··· the caller ···▶ state_in.h

A returned tensor that equals a layer's state, layer by layer, is one of its `own`. Any other has
its neurons along one dimension; it is an *entry*, which probes treat like a layer that reads them.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations

import torch
from torch import Tensor

from thinrnn._discovery.inputs import Moved
from thinrnn._discovery.probe import Probe, Source
from thinrnn._discovery.raw_tensors import ModulelessLayer
from thinrnn._model.tree import argument_names, is_number, parameters_of, tensors_in
from thinrnn.errors import PlanError

DIRECTIONS = {"in", "out", "next", "prev", "previous", "new", "old", "last", "init", "initial", "n"}


class ReturnedEntry(ModulelessLayer):
    """A returned tensor whose width may change; it reads the neurons along one dimension."""

    def __init__(self, index: int, path: str, argument: str, dim: int, size: int) -> None:
        self.index, self.path, self.argument, self.size = index, path, argument, size
        self.axis = dim
        super().__init__(f"returned {path}")

    def build(self) -> None:
        self.add("input", self.size)


@dataclass
class FoundStates:
    """The states among what a model returns, by the number of the returned tensor."""

    own: dict[int, set[str]]  # the layers whose state it is
    entries: list[ReturnedEntry]
    copies: list[tuple[ReturnedEntry, ReturnedEntry]]  # an argument returned, and its state

    @property
    def indices(self) -> set[int]:
        """The numbers of the entries among the returned tensors."""
        return {entry.index for entry in self.entries}


def find_states(probe: Probe, moved: Moved, declared: Sequence[str]) -> FoundStates:
    """Return the states: those declared by path, and pairs of an argument and a returned tensor."""
    return _StateFinder(probe, moved).find(declared)


class _StateFinder:
    def __init__(self, probe: Probe, moved: Moved) -> None:
        self.probe, self.moved = probe, moved
        self.leaves = probe.base.returned
        self.paths = probe.base.paths
        self.names = argument_names(probe.model, probe.arguments)
        self.given = list(tensors_in(probe.arguments))

    def find(self, declared: Sequence[str]) -> FoundStates:
        for pattern in declared:
            if not any(fnmatchcase(path, pattern) for path in self.paths):
                known = ", ".join(f"'{path}'" for path in self.paths)
                raise PlanError(f"states=['{pattern}']: the model returns {known}.")
        wanted = {
            i for i, path in enumerate(self.paths) if any(fnmatchcase(path, p) for p in declared)
        }
        own = self._own(wanted)
        pairs = self._pairs(own, wanted)
        entries = []
        for i in sorted(wanted | pairs.keys()):
            entry = None if i in own else self._entry(i, pairs.get(i))
            entries += [] if entry is None else [entry]
        copies = [
            (ReturnedEntry(i, self.paths[i], "", entry.axis, entry.size), entry)
            for entry in entries
            for i in self._returned_arguments(entry, pairs)
        ]
        return FoundStates(own, entries + [copy for copy, _ in copies], copies)

    def _own(self, wanted: set[int]) -> dict[int, set[str]]:
        """Return, per returned tensor, the layers whose state it is and which take it back."""
        parameters = parameters_of(self.probe.model)
        places = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        args, kwargs = self.probe.arguments
        is_open = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)
        given = sum(a is not None for a in [*args, *kwargs.values()])
        has_room = is_open or len(places) > given
        given_states = {port[0] for index in self.moved for port in self._state_ports(index)}
        found: dict[int, set[str]] = defaultdict(set)
        for name, layer in self.probe.layers.items():
            if not layer.is_recurrent:
                continue
            last = self.probe.points[0].results[name][-1]
            for state in tensors_in(layer.state_of(last)):
                for i, leaf in enumerate(self.leaves):
                    is_state = has_room or name in given_states or i in wanted
                    if is_state and leaf.shape == state.shape and torch.equal(leaf, state):
                        found[i].add(name)
        return found if len(found) < len(self.leaves) else defaultdict(set)

    def _state_ports(self, argument: int) -> Iterator[tuple[str, str, str]]:
        """Yield the states of layers that an argument moves."""
        for port, features in self.moved.get(argument, {}).items():
            if port[1] == "state" and features.any():
                yield port

    def _pairs(self, own: dict[int, set[str]], wanted: set[int]) -> dict[int, int]:
        """Return, for returned tensors that come back, the argument that they come back as.

        Those that are `wanted` need no other sign of it than their shape.
        """
        pairs: dict[int, int] = {}
        floating = [i for i, leaf in enumerate(self.given) if is_number(leaf)]
        for a in floating:
            alike = [i for i in self._alike(a) if i not in own and i not in pairs]
            named = [i for i in alike if _agree(self.names[a], self.paths[i])]
            told = [i for i in named or alike if i in wanted]
            if len(named) == 1 or told:
                pairs[(told or named)[0]] = a
        for shape in dict.fromkeys(self.given[a].shape for a in floating):
            left = [a for a in floating if self.given[a].shape == shape and self._is_state(a, own)]
            left = [a for a in left if a not in pairs.values()]
            sources = [(p[0], p[2]) for a in left for p in self._state_ports(a)]
            alike = [i for a in left[:1] for i in self._alike(a) if i not in own and i not in pairs]
            alike = [i for i in alike if any(self._axis(i, s) for s in sources)]
            if len(alike) == len(left):
                pairs |= dict(zip(alike, left, strict=True))
        return pairs

    def _alike(self, argument: int) -> list[int]:
        """Return the returned tensors that have the shape of an argument, other than itself."""
        given = self.given[argument]
        return [
            i
            for i, leaf in enumerate(self.leaves)
            if leaf.shape == given.shape and is_number(leaf) and not torch.equal(leaf, given)
        ]

    def _is_state(self, argument: int, own: dict[int, set[str]]) -> bool:
        """Whether an argument is given to layers as their state, and not returned as it is."""
        layers = {port[0] for port in self._state_ports(argument)}
        shape = self.given[argument].shape
        taken = any(self.leaves[i].shape == shape and layers & names for i, names in own.items())
        return bool(layers) and not taken

    def _returned_arguments(self, entry: ReturnedEntry, pairs: dict[int, int]) -> list[int]:
        """Return the returned tensors that are just the argument which an entry comes back as."""
        if not entry.argument:
            return []
        given = self.given[pairs[entry.index]]
        return [
            i
            for i, leaf in enumerate(self.leaves)
            if i != entry.index and leaf.shape == given.shape and torch.equal(leaf, given)
        ]

    def _entry(self, index: int, argument: int | None) -> ReturnedEntry | None:
        """Return a returned tensor as an entry, if it shows the neurons of a layer one by one."""
        for name, layer in self.probe.layers.items():
            for space in layer.spaces:
                if space != "input" and (dim := self._axis(index, (name, space))):
                    back = "" if argument is None else self.names[argument]
                    size = self.leaves[index].shape[dim]
                    return ReturnedEntry(index, self.paths[index], back, dim, size)
        return None

    def _axis(self, index: int, source: Source) -> int:
        """Return the dimension, from the last, where each neuron has its own place; else 0."""
        size = self.probe.layers[source[0]].spaces[source[1]].size
        base = self.leaves[index]
        moved = [
            self.probe.returned({source: torch.arange(size) == one})[index] != base
            for one in {0, min(1, size - 1), size - 1}  # the last may be in another gate
        ]
        for dim in range(-1, -base.dim() - 1, -1):
            places = [_places(entries, dim) for entries in moved]
            for a, b in combinations(places, 2):
                if a.any() and b.any() and not (a & b).any():
                    return dim
        return 0


def _places(entries: Tensor, dim: int) -> Tensor:
    """Return the positions along a dimension at which there is any."""
    return entries.movedim(dim, -1).flatten(0, -2).any(0) if entries.dim() > 1 else entries


def _agree(argument: str, returned: str) -> bool:
    """Whether two paths are one name, but for words such as in and out: "x.state_in", "state_out".

    >>> _agree("batch.state_in.h", "state_out.h"), _agree("x", "y")
    (True, False)
    """
    a, b = _words(argument), _words(returned)
    return bool(b) and a[-len(b) :] == b


def _words(path: str) -> list[str]:
    words = re.split(r"[._]", path.lower())
    return [word for word in words if word not in DIRECTIONS and not word.isdigit()]
