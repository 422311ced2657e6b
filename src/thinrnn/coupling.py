"""Which feature of which layer depends on which neuron, found by changing neurons in subsets.

A feature that does *not* move when a set of neurons is changed depends on none of them. Sets are
the bits of the neurons' numbers, each with its complement: a feature that reads one neuron is left
with that one candidate after 2 log2(n) runs. What is left with several is looked at again, source
by source and with random sets; what is left with many is *mixed*.

Mixed features get a second chance by silence: in `softmax(h @ v) @ h` every feature moves with every
neuron, through the weights, but feature j is exactly zero when neuron j is. Such a feature is
*carried* by j, and something else, here the raw parameter v, reads the neurons too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from thinrnn.probe import Port, Probe, Source, Trace, flipped, silenced

FEW = 4  # a feature may read this many neurons of one source (a GLU reads two)
RANDOM_SETS = 48


@dataclass
class Coupling:
    """What the probes showed."""

    # for each port and source, (features, neurons): this feature reads this neuron
    reads: dict[Port, dict[Source, Tensor]] = field(default_factory=dict)
    # features that depend on a source in a way that no single neuron explains
    mixed: dict[Port, dict[Source, Tensor]] = field(default_factory=dict)
    # per port and call: features that any source moves
    fed: dict[Port, list[Tensor]] = field(default_factory=dict)
    returned: dict[Source, list[int]] = field(default_factory=dict)
    touched: dict[Source, set[str]] = field(default_factory=dict)


def find_coupling(probe: Probe, sources: dict[Source, int]) -> Coupling:
    """Return who reads whom, for sources given with their sizes."""
    found = Coupling()
    found.fed = {p: [_nothing(v) for v in calls] for p, calls in probe.base.intakes.items()}
    for source, size in sources.items():
        trace = probe.look({source: flipped(torch.ones(size, dtype=torch.bool))})
        found.returned[source] = probe.returned(trace)
        found.touched[source] = probe.touched(trace)
        for port, calls in probe.moved(trace).items():
            found.fed[port] = [a | b for a, b in zip(found.fed[port], calls, strict=True)]
            moved = torch.stack(calls).any(0)
            if moved.any():
                candidates = moved[:, None] & torch.ones(size, dtype=torch.bool)
                found.reads.setdefault(port, {})[source] = candidates
    active = {s: n for s, n in sources.items() if any(s in r for r in found.reads.values())}
    for bit, value in _bits(max(active.values(), default=1)):
        _narrow(probe, found, {s: _has_bit(n, bit, value) for s, n in active.items()})
    for source in _unclear(found):
        _narrow_one(probe, found, source, active[source])
    for port, sources_read in found.reads.items():
        for source, candidates in sources_read.items():
            many = candidates.sum(1) > FEW
            if many.any():
                candidates[many] = False
                found.mixed.setdefault(port, {})[source] = many
    for source in dict.fromkeys(s for mixed in found.mixed.values() for s in mixed):
        _carry(probe, found, source, active[source])
    return found


def _narrow(probe: Probe, found: Coupling, masks: dict[Source, Tensor]) -> bool:
    """Change the masked neurons and strike them out for each feature that did not move."""
    moved = probe.moved(probe.look({s: flipped(mask) for s, mask in masks.items()}))
    struck = False
    for port, sources_read in found.reads.items():
        still = ~torch.stack(moved[port]).any(0)
        for source, candidates in sources_read.items():
            if source in masks:
                gone = candidates & still[:, None] & masks[source]
                struck = struck or bool(gone.any())
                candidates &= ~gone
    return struck


def _unclear(found: Coupling) -> Iterator[Source]:
    names = {s for r in found.reads.values() for s, c in r.items() if (c.sum(1) > 1).any()}
    return iter(sorted(names))


def _narrow_one(probe: Probe, found: Coupling, source: Source, size: int) -> None:
    """Change neurons of one source alone: first by bits, then in random sets."""
    for bit, value in _bits(size):
        _narrow(probe, found, {source: _has_bit(size, bit, value)})
    generator = torch.Generator().manual_seed(0)
    idle = 0
    for _ in range(RANDOM_SETS):
        if source not in _unclear(found) or idle == 8:
            return
        mask = torch.rand(size, generator=generator) < 0.5
        idle = 0 if _narrow(probe, found, {source: mask}) else idle + 1


def _carry(probe: Probe, found: Coupling, source: Source, size: int) -> None:
    """Find, for mixed features, the one neuron whose silence silences them."""
    zero = _zeros(probe, probe.look({source: silenced(torch.ones(size, dtype=torch.bool))}))
    loud = _zeros(probe, probe.base)
    carried = {}
    for port, mixed in found.mixed.items():
        if source in mixed:
            rows = mixed[source] & zero[port] & ~loud[port]
            carried[port] = rows[:, None] & torch.ones(size, dtype=torch.bool)
    if not any(rows.any() for rows in carried.values()):
        return
    for bit, value in _bits(size):
        mask = _has_bit(size, bit, value)
        zero = _zeros(probe, probe.look({source: silenced(mask)}))
        for port, candidates in carried.items():
            candidates &= torch.where(zero[port][:, None], mask, ~mask)
    for port, candidates in carried.items():
        sure = candidates.sum(1) == 1
        found.reads[port][source][sure] = candidates[sure]
        found.mixed[port][source] &= ~sure
        # the leak is real even where every feature is explained: keep the entry


def _zeros(probe: Probe, trace: Trace) -> dict[Port, Tensor]:
    zeros = {}
    for port, base in probe.base.intakes.items():
        now = trace.intakes.get(port, [])
        if [v.shape for v in now] != [v.shape for v in base]:
            zeros[port] = torch.zeros(base[0].shape[-1], dtype=torch.bool)
        else:
            flat = [(v == 0).reshape(-1, v.shape[-1]).all(0).cpu() for v in now]
            zeros[port] = torch.stack(flat).all(0)
    return zeros


def _nothing(values: Tensor) -> Tensor:
    return torch.zeros(values.shape[-1], dtype=torch.bool)


def _bits(size: int) -> Iterable[tuple[int, int]]:
    return [(bit, value) for bit in range((size - 1).bit_length()) for value in (1, 0)]


def _has_bit(size: int, bit: int, value: int) -> Tensor:
    return (torch.arange(size) >> bit & 1) == value
