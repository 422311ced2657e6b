"""Which feature of which layer depends on which neuron, found by changing neurons in subsets.

A feature that does *not* move when a set of neurons is changed depends on none of them. Sets are
the bits of the neurons' numbers, each with its complement: a feature that reads one neuron is left
with that one candidate after 2 log2(n) runs. Features that read a few (a GLU two, the gates of a
hand-written LSTM four) are found by the bits of the number modulo n/k. A feature that is left with
many is *mixed*.

Raw tensors are sources too: in `h * scale`, position j of the scale belongs to neuron j. In
`softmax(h @ v) @ h` every feature moves with every neuron, through the weights; with the raw reader
v set to zero, only the other readers are left.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from thinrnn._discovery import progress
from thinrnn._discovery.probe import NOTHING, Probe, Source, Zeroed
from thinrnn._discovery.recording import Port, Seen

FEW = 8  # a feature may read this many neurons of one source


@dataclass
class Coupling:
    """What the probes showed."""

    # for each port and source, (features, neurons): this feature reads this neuron
    reads: dict[Port, dict[Source, Tensor]] = field(default_factory=dict)
    # for each source and port: features that depend on it at all
    moving: dict[tuple[Source, Port], Tensor] = field(default_factory=dict)
    # features that depend on a source in a way that no few neurons explain
    mixed: dict[Port, dict[Source, Tensor]] = field(default_factory=dict)
    # per port and call: features that any layer moves
    fed: dict[Port, list[Tensor]] = field(default_factory=dict)
    # what moved when all of a source was changed
    whole: dict[Source, Seen] = field(default_factory=dict)
    # raw tensors that may read a source; `explained` if nothing else keeps it
    raws: dict[Source, list[str]] = field(default_factory=dict)
    explained: set[Source] = field(default_factory=set)
    # which of the returned tensors show a source
    shown: dict[Source, set[int]] = field(default_factory=dict)


Shown = Callable[[Source, Seen], set[int]]


def find_coupling(
    probe: Probe, ports: list[Port], is_users: Callable[[str], bool], shown: Shown
) -> Coupling:
    """Return which neurons are read at the given ports.

    `is_users` tells which raw tensors the user's own code uses, `shown` which of the returned
    tensors count for a source (a state that the caller passes back does not).
    """
    search = _Search(probe, ports, is_users, shown)
    search.look_past_raws()
    return search.found


class _Search:
    def __init__(
        self, probe: Probe, ports: list[Port], is_users: Callable[[str], bool], shown: Shown
    ) -> None:
        self.probe, self.ports, self.is_users, self.shown = probe, ports, is_users, shown
        self.sizes: dict[Source, int] = {}
        self.found = found = Coupling()
        found.reads = {port: {} for port in ports}
        found.mixed = {port: {} for port in ports}
        found.fed = {port: probe.base.still(port) for port in ports}
        for number, (name, layer) in enumerate(layers := list(probe.layers.items())):
            progress.tell(f"layer {number + 1} of {len(layers)}: what reads '{name}'")
            for space in layer.spaces.values():
                if space.name != "input":
                    self._note_fed(self._change_all((name, space.name), space.size))
        self.raw_names = self._raw_names()
        for name in self.raw_names:
            for space in probe.add_raw(name).spaces.values():
                self._change_all((name, space.name), space.size)
        moving = [s for s in found.whole if any(s in reads for reads in found.reads.values())]
        self._narrow_all(moving, ports)

    def look_past_raws(self) -> None:
        """Find readers that raw tensors hide; raw tensors as sources come first."""
        for source in sorted(self.found.whole, key=lambda s: s[0] not in self.raw_names):
            whole = self.found.whole[source]
            self.found.shown[source] = self.shown(source, whole)
            raws = [n for n in whole.touched if self.is_users(n) and n != source[0]]
            mixed = [port for port in self.ports if source in self.found.mixed[port]]
            if raws and not whole.diverged and (mixed or self.found.shown[source]):
                self._look_past(source, raws, mixed)

    def _look_past(self, source: Source, raws: list[str], mixed: list[Port]) -> None:
        everything = {source: torch.ones(self.sizes[source], dtype=torch.bool)}
        zeroed: Zeroed = NOTHING
        seen = self.found.whole[source]
        for name in raws:  # only readers: a factor set to zero would hide the source itself
            now = self.probe.look(everything, zeroed=zeroed | {name})
            moves = self.shown(source, now) or any(now.features(port).any() for port in mixed)
            if moves and not now.diverged:
                zeroed, seen = zeroed | {name}, now
        if zeroed:
            for port in mixed:
                self._start(source, port, seen)
            self._narrow_all([source], mixed, zeroed)
        shown = self.shown(source, seen)
        readers = [n for n in raws if n not in zeroed and not self._goes_with(n, source)]
        if not shown and not any(source in self.found.mixed[port] for port in mixed):
            readers += [name for name in zeroed if self._is_needed(name, zeroed, source, mixed)]
            self.found.explained |= {source} if readers else set()
        elif shown and self._is_returned_apart(source, shown):
            readers = []
        self.found.raws[source] = readers

    def _is_needed(self, raw: str, zeroed: Zeroed, source: Source, ports: list[Port]) -> bool:
        """Whether a source looks mixed or returned when this raw tensor is not set to zero."""
        half = torch.arange(self.sizes[source]) % 2 == 0
        seen = self.probe.look({source: half}, zeroed=zeroed - {raw})
        nothing = torch.zeros(1, self.sizes[source], dtype=torch.bool)
        others = (
            seen.features(port) & ~(self.found.reads[port].get(source, nothing) & half).any(1)
            for port in ports
        )
        return bool(self.shown(source, seen)) or any(bool(moved.any()) for moved in others)

    def _goes_with(self, raw: str, source: Source) -> bool:
        """Whether each position of a raw tensor belongs to one neuron of a source."""
        for port, reads in self.found.reads.items():
            for (name, _), positions in reads.items():
                if name == raw and source in reads and source not in self.found.mixed[port]:
                    together = positions.float().T @ reads[source].float()  # (positions, neurons)
                    if together.any() and bool(((together > 0).sum(0) <= 1).all()):
                        return True
        return False

    def _is_returned_apart(self, source: Source, leaves: set[int]) -> bool:
        """Whether one neuron alone moves just a part of what is returned."""
        size = self.sizes[source]
        base = self.probe.base.returned
        every = self.probe.returned({source: torch.ones(size, dtype=torch.bool)})
        single = self.probe.returned({source: torch.arange(size) == size // 2})
        return any(bool(((every[i] != base[i]) & (single[i] == base[i])).any()) for i in leaves)

    def _change_all(self, source: Source, size: int) -> Seen:
        """Change every neuron of a source at once."""
        self.sizes[source] = size
        everything = torch.ones(size, dtype=torch.bool)
        seen = self.found.whole[source] = self.probe.look({source: everything})
        if not seen.diverged:
            for port in self.ports:
                self._start(source, port, seen)
        return seen

    def _start(self, source: Source, port: Port, seen: Seen) -> None:
        """Make every neuron a candidate for every feature that moved."""
        self.found.mixed[port].pop(source, None)
        self.found.reads[port].pop(source, None)
        moved = self.found.moving[source, port] = seen.features(port)
        if moved.any():
            everything = torch.ones(self.sizes[source], dtype=torch.bool)
            self.found.reads[port][source] = moved[:, None] & everything

    def _note_fed(self, seen: Seen) -> None:
        for port in () if seen.diverged else self.ports:
            for fed, moved in zip(self.found.fed[port], seen.moved.get(port, ()), strict=False):
                fed |= moved

    def _raw_names(self) -> list[str]:
        """Return the user's raw tensors that neurons of some layer meet."""
        met = dict.fromkeys(name for whole in self.found.whole.values() for name in whole.touched)
        shapes = {name: self.probe.tensors[name].shape for name in met if self.is_users(name)}
        return [name for name, shape in shapes.items() if max(shape, default=1) > 1]

    def _narrow_all(
        self, sources: list[Source], ports: list[Port], zeroed: Zeroed = NOTHING
    ) -> None:
        """Remove candidates until each feature has few, or is found to be mixed."""
        self.scope, self.zeroed = ports, zeroed
        for source in sources:
            if self._meets_others(source):
                self._give_up_hopeless(source)
        widest = torch.arange(max((self.sizes[s] for s in sources), default=0))
        for half in (half for pair in halves(widest) for half in pair):
            masks = {s: half[: self.sizes[s]] for s in sources if self._is_read(s)}
            self._narrow({s: mask for s, mask in masks.items() if mask.any() and not mask.all()})
        for place, source in enumerate(sources):
            progress.tell(f"layer {place + 1} of {len(sources)}: which neurons of '{source[0]}'")
            if self._unclear(source):
                self._give_up_hopeless(source)
                self._narrow_one(source)
        for port in ports:
            for source in [s for s in sources if s in self.found.reads[port]]:
                number = self.found.reads[port][source].sum(1)
                most = min(FEW, max(1, self.sizes[source] // 2))
                self._note_mixed(source, port, (number > most) | (number == 0))

    def _note_mixed(self, source: Source, port: Port, features: Tensor) -> None:
        """Note features that move with a source, but not with a few neurons of it."""
        features = features & self.found.moving[source, port]
        if features.any():
            self.found.reads[port][source][features] = False
            before = self.found.mixed[port].get(source, torch.zeros_like(features))
            self.found.mixed[port][source] = before | features

    def _narrow(self, masks: dict[Source, Tensor]) -> set[Port]:
        """Change the masked neurons and remove them as candidates of features that did not move.

        Return where there was such a feature among those with several candidates.
        """
        seen = self.probe.look(masks, zeroed=self.zeroed)
        stayed = set()
        for port in self.scope:
            reads = self.found.reads[port]
            if masks.keys().isdisjoint(reads):
                continue
            still = ~seen.features(port)
            for source in masks if still.any() else ():
                if (candidates := reads.get(source)) is not None:
                    if port not in stayed and (still & (candidates.sum(1) > 1)).any():
                        stayed.add(port)
                    candidates &= ~(still[:, None] & masks[source])
        return stayed

    def _meets_others(self, source: Source) -> bool:
        """Whether a feature that moves with a source moves with another one too."""
        moving = self.found.moving
        for port in self.scope:
            if source in self.found.reads[port]:
                others = [moving[s, port] for s in self.found.reads[port] if s != source]
                if any(bool((moving[source, port] & moved).any()) for moved in others):
                    return True
        return False

    def _give_up_hopeless(self, source: Source) -> None:
        """Note as mixed where every feature moves, however few of the neurons are changed."""
        size = self.sizes[source]
        generator = torch.Generator().manual_seed(0)
        ports = {port for port in self.scope if self._most(source, port) > 1}
        for _ in range(3):
            if ports:
                some = torch.randperm(size, generator=generator) < max(1, size // 16)
                ports -= self._narrow({source: some})
        for port in ports:
            self._note_mixed(source, port, self.found.reads[port][source].sum(1) > 1)

    def _most(self, source: Source, port: Port) -> int:
        """Return how many candidates a feature of a port has at most."""
        candidates = self.found.reads[port].get(source)
        return 0 if candidates is None else int(candidates.sum(1).max())

    def _unclear(self, source: Source) -> int:
        """Return how many candidates a feature has at most, if there is one with several."""
        most = max((self._most(source, port) for port in self.scope), default=0)
        return most if most > 1 else 0

    def _is_read(self, source: Source) -> bool:
        return any(self._most(source, port) > 0 for port in self.scope)

    def _narrow_one(self, source: Source) -> None:
        """Change neurons of one source alone: by bits, in blocks of equal size, in random sets."""
        size = self.sizes[source]
        whole = (1, torch.arange(size), torch.zeros(size))
        for blocks, place, block in (whole, *divisions(size, FEW)):
            for pair in halves(place):
                # a feature that reads one place in each block stays in one of the two
                if not any([self._narrow({source: half}) for half in pair]):
                    break
            else:
                for number in range(blocks if blocks > 1 else 0):
                    self._narrow({source: block == number})
            if self._unclear(source) <= blocks:
                return
        generator = torch.Generator().manual_seed(0)
        idle, left = 0, self._candidates(source)
        while idle < 6 and self._unclear(source):
            self._narrow({source: torch.rand(size, generator=generator) < 0.25})
            idle = idle + 1 if self._candidates(source) == left else 0
            left = self._candidates(source)

    def _candidates(self, source: Source) -> int:
        found = (self.found.reads[port].get(source) for port in self.scope)
        return sum(int(row.sum()) for row in found if row is not None)


def halves(numbers: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield, per bit, the neurons whose number has it and those whose number has not.

    >>> [one.tolist() for one, other in halves(torch.arange(3))]
    [[False, True, False], [False, False, True]]
    """
    for bit in range(int(numbers.max()).bit_length() if len(numbers) else 0):
        has = (numbers >> bit & 1).bool()
        yield has, ~has


def divisions(size: int, most: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield ways to part neurons into 2 to `most` equal blocks: how many, places, blocks.

    Neurons at the same place are side by side in one way (a GLU halves a row), and next to each
    other in the other way.

    >>> [(k, place.tolist(), block.tolist()) for k, place, block in divisions(4, most=2)]
    [(2, [0, 1, 0, 1], [0, 0, 1, 1]), (2, [0, 0, 1, 1], [0, 1, 0, 1])]
    """
    each = torch.arange(size)
    for k in range(2, most + 1):
        if size % k == 0 and size > k:
            yield k, each % (size // k), each // (size // k)
            yield k, each // k, each % k
