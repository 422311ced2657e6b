"""find_groups: from a model and one example call to a Plan.

    layers ──▶ probe ──▶ coupling ──▶ neurons (what must go together) ──▶ groups ──▶ trial ──▶ Plan

Structure tells what a neuron owns inside a layer; probes tell what feeds what between layers; tied
parameters join their owners; finally a trial cut is compared with the gated model.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._discovery import progress
from thinrnn._discovery.coupling import Coupling, Shown, find_coupling
from thinrnn._discovery.inputs import features_of, find_inputs, moved_by_arguments
from thinrnn._discovery.neurons import ARGUMENT, Element, Neurons, collect, read_one_way
from thinrnn._discovery.probe import Probe, Source
from thinrnn._discovery.raw_tensors import RawTensor
from thinrnn._discovery.recording import Port, Seen
from thinrnn._discovery.refusals import Reasons
from thinrnn._discovery.states import ReturnedEntry, find_states
from thinrnn._discovery.trial import prove
from thinrnn._gates.distributed import need_whole
from thinrnn._layers.base import Layer, Slot
from thinrnn._layers.registry import is_recurrent, refusal_of
from thinrnn._model.isolation import fixed_randomness, fresh_copy, ours_on_cpu
from thinrnn._model.tree import Arguments, argument_names, call_arguments, tensors_in
from thinrnn.errors import ExampleError, NoRecurrentLayerError, PlanError
from thinrnn.group import Group
from thinrnn.plan import Plan, Refusal, named_tensors

WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def find_groups(
    model: nn.Module, example: Any, *, states: Sequence[str] = (), through_norms: bool = False
) -> Plan:
    """Return the plan of a model: which neurons can be removed, and which cannot and why.

    The model runs on the example several times, on a copy: the model itself, its mode, buffers and
    random state stay as they are. Structure tells what a neuron owns inside a layer; changing the
    values of layers tells what feeds what between them. Finally random neurons are cut as a trial,
    and a group whose removal changes the outputs is refused. Where the model's own code reads a
    size from an attribute, such as `self.hidden_size`, the plan sets it to the new size.

    Args:
        model: any module with a recurrent layer: `nn.LSTM`, `nn.GRU`, `nn.RNN`, their cells, `RHN`,
            a layer registered with `register_layer`, or a loop over other layers.
        example: what the model is called with: a tensor, a tuple of positional arguments, or a
            dict of keyword arguments. Two sequences of a few steps are enough.
        states: where the result has states, which only come back as arguments, or other entries
            whose width may change: paths such as "state_out.h", or patterns such as "next.*".
            States that a layer returns itself, and pairs of an argument and a returned tensor of
            one name or shape, are found without.
        through_norms: Also prune neurons that go through `nn.LayerNorm`, `nn.RMSNorm` or
            `nn.GroupNorm`. It is an approximation: the gated model takes mean and variance over
            open neurons alone, which training has to adapt to. The small model computes exactly
            what the gated one does.

    Returns:
        The plan. Print it to see each group, what produces and reads it, and what is refused.

    Raises:
        ExampleError: if the model does not run on the example, or gives other values each time.
        NoRecurrentLayerError: if the example reaches no recurrent layer.
        PlanError: if the model has gates already, is compiled or wrapped, or returns nothing at
            a path of `states`.
        GateError: if the model is sharded by FSDP.

    >>> lstm = nn.LSTM(3, 8, num_layers=2)
    >>> [group.name for group in find_groups(lstm, torch.zeros(5, 2, 3))]
    ['input', 'l0']
    """
    if any("_thinrnn" in module.__dict__ for module in model.modules()):
        raise PlanError("the model has gates already: call find_groups before attach_.")
    if "_orig_mod" in model._modules:
        raise PlanError(
            "the model is compiled: give the model itself, and compile it after attach_."
        )
    if isinstance(model, WRAPPERS):
        raise PlanError(
            f"the model is wrapped in {type(model).__name__}: give the model itself, model.module, "
            "and wrap it after attach_."
        )
    need_whole(model, model.parameters())
    arguments = call_arguments(example)
    use = partial(_probe, through_norms=through_norms)
    with fixed_randomness(), torch.no_grad(), ours_on_cpu(), progress.shown():
        clone, _, probe = fresh_copy(model, arguments, use)
        finder = _Finder(probe, states)
        plan = finder.plan()
        proven = prove(plan, clone, probe.examples, probe.can_train, finder.raws_of)
        known = {refusal.group for refusal in plan.refused}
        refused = (r if r.group in known else finder.explained(r) for r in proven.refused)
        applied = probe.applications.per_step()
        return replace(proven, refused=tuple(refused), applied=applied)


def _probe(model: nn.Module, arguments: Arguments, *, through_norms: bool) -> Probe:
    """Return a probe of a model; zeros in its parameters, which would hide readers, get noise."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.is_floating_point() and bool((parameter == 0).any()):
            noise = 0.1 * torch.randn(parameter.shape, generator=generator).to(parameter)
            parameter.data = torch.where(parameter == 0, noise, parameter)
    return Probe(model, arguments, through_norms=through_norms)


class _Finder:
    """Joins what belongs together into neurons, and neurons into groups."""

    def __init__(self, probe: Probe, states: Sequence[str]) -> None:
        self.probe = probe
        self.neurons = Neurons()
        self.outside: dict[str, None] = {}
        self.by_argument = moved_by_arguments(probe)
        self.states = find_states(probe, self.by_argument, states)
        if self.states.entries:
            probe.add_entries({entry.index: entry for entry in self.states.entries})
        self.reasons = Reasons(probe, self.by_argument, self.states)
        self.couplings = [self._coupling(probe, probe.ports, self.reasons.shown)]
        self.layers = dict(probe.layers)
        new = probe.called_in_training - set(probe.layers)
        raws = {name for name in probe.used_in_training if self._may_have_neurons(name)}
        if new or raws:
            self._look_at_training(new, raws)

    def _coupling(self, probe: Probe, ports: list[Port], shown: Shown) -> Coupling:
        return find_coupling(probe, ports, self.reasons.is_users, shown)

    def _may_have_neurons(self, raw: str) -> bool:
        """Whether a raw tensor of the user's has a dimension as long as a row of neurons."""
        rows = {space.size for layer in self.layers.values() for space in layer.spaces.values()}
        shape = self.probe.tensors[raw].shape
        return self.reasons.is_users(raw) and any(n > 1 and n in rows for n in shape)

    def _look_at_training(self, new: set[str], raws: set[str]) -> None:
        """Look at what only training uses: a head for an auxiliary loss, a table of masks."""
        try:
            norms = self.probe.through_norms
            probe = Probe(
                self.probe.model, self.probe.arguments, through_norms=norms, training=True
            )
        except ExampleError:  # training is not repeatable; the trial still checks it
            return
        ports = [port for port in probe.ports if port[0] in new or raws]

        def shown(source: Source, seen: Seen) -> set[int]:
            return seen.returned if source[0] in new else set()

        found = self._coupling(probe, ports, shown)
        if not new:  # the rest is known from eval
            found.whole = {s: seen for s, seen in found.whole.items() if s[0] in raws}
        self.couplings.append(found)
        self.layers |= {n: layer for n, layer in probe.layers.items() if n not in self.layers}

    def plan(self) -> Plan:
        """Return the plan that the probes suggest, before the trial."""
        self._need_recurrence()
        for name, layer in self.layers.items():
            for space in layer.spaces.values():
                for j in range(space.size):
                    self.neurons.add((name, space.name, j))
        self._join_tied()
        undeclared: dict[Source, list[str]] = defaultdict(list)
        for coupling in self.couplings:
            for port in coupling.fed:
                self._join_readers(port, coupling)
            for source in coupling.whole:
                reason = self.reasons.reason(source, coupling, self._label(source))
                if reason:
                    self.neurons.keep(self._elements(source), reason)
                    undeclared[source] += coupling.raws.get(source, [])
        self._join_inputs()
        self._join_states()
        groups, refused = collect(self.neurons, self.layers, undeclared)
        groups, twice = read_one_way(groups, named_tensors(self.probe.model))
        return Plan(tuple(groups), (*refused, *twice, *self._unreached()), tuple(self.outside))

    def raws_of(self, group: Group) -> list[str]:
        """Return raw tensors that may read the neurons of a group."""
        return self.reasons.raws(group, self.couplings[0])

    def explained(self, refusal: Refusal) -> Refusal:
        """Return the refusal of a group that failed the trial, with a hint."""
        return self.reasons.explained(refusal, self.couplings[0])

    def _label(self, source: Source) -> str:
        return self.layers[source[0]].label(source[1])

    def _elements(self, source: Source) -> list[Element]:
        return [(*source, j) for j in range(self.layers[source[0]].spaces[source[1]].size)]

    def _need_recurrence(self) -> None:
        cells = any(layer.is_recurrent for layer in self.layers.values())
        loops = any(p[0] == s[0] for c in self.couplings for p, r in c.reads.items() for s in r)
        through_caller = any(entry.argument for entry in self.states.entries)
        modules = dict(self.probe.model.named_modules())
        # a recurrence of element-wise code alone looks like any other code, and is cut like it
        is_users = any(not type(m).__module__.startswith("torch.") for m in modules.values())
        code_alone = is_users and not any(is_recurrent(m) for m in modules.values())
        if not (cells or loops or through_caller or code_alone):
            seen = sorted({type(m).__name__ for m in modules.values()})
            reasons = {n: refusal_of(n, m, self.probe.model) for n, m in modules.items()}
            why = [f"'{name}' cannot: {reason}" for name, reason in reasons.items() if reason]
            raise NoRecurrentLayerError(
                "the example reaches no recurrent layer that thinrnn knows (nn.LSTM, nn.GRU, "
                "nn.RNN, their cells, thinrnn.RHN, or a loop over layers); the model has: "
                f"{'. '.join([', '.join(seen), *why])}."
            )

    def _join_tied(self) -> None:
        """Join neurons that own the same position of one parameter, or that a layer ties."""
        for name, layer in self.layers.items():
            for first, *others in layer.ties():
                for other in others:
                    self.neurons.join((name, *first), (name, *other))
        owners: dict[tuple[int, int], list[tuple[Source, Slot]]] = defaultdict(list)
        users: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        tensors = {name: id(tensor) for name, tensor in named_tensors(self.probe.model).items()}
        for name, layer in self.layers.items():
            for space in layer.spaces.values():
                for slot in space.slots:
                    key = tensors[layer.full_name(slot.parameter)]
                    users[key][name].add(slot.dim)
                    owners[key, slot.dim].append(((name, space.name), slot))
        for (key, dim), places in owners.items():
            taken: dict[int, Element] = {}
            lacking = [name for name, dims in users[key].items() if dim not in dims]
            for source, slot in places:
                if lacking:
                    reason = f"its parameter is shared with {lacking[0]}, which needs all"
                    self.neurons.keep(self._elements(source), reason)
                for element in self._elements(source):
                    for at in slot.positions(element[2]):
                        self.neurons.join(taken.setdefault(at, element), element)

    def _join_readers(self, port: Port, coupling: Coupling) -> None:
        """Join each feature with the neurons that it reads."""
        name, _, space = port
        mixed = coupling.mixed[port]
        clear = {s: rows for s, rows in coupling.reads[port].items() if s not in mixed}
        lists = {source: _lists(rows) for source, rows in clear.items()}
        often = {s for s, rows in clear.items() if len(clear) > 1 and bool((rows.sum(0) > 1).any())}
        wide = _spread(lists, often)
        for (source, channel), other in wide.items():
            label, at_once = self._label(source), f"many neurons of '{self._label(other)}' at once"
            self.neurons.keep([(*source, channel)], f"'{label}' acts on {at_once}")
        for f in range(self.layers[name].spaces[space].size):
            feature = (name, space, f)
            read = [(s, c) for s, rows in lists.items() for c in rows[f]]
            clean = [(s, c) for s, c in read if (s, c) not in wide]
            if any(not self._is_raw(source) for source, _ in clean):
                for source, channel in clean:
                    self.neurons.join(feature, (*source, channel))
            elif any(not self._is_raw(source) for source, _ in read):
                self.neurons.keep([feature], f"'{name}' reads it together with others")
            elif any(bool(coupling.moving[source, port][f]) for source in mixed):
                self.neurons.keep([feature], f"mixed with others before '{name}' reads it")

    def _is_raw(self, source: Source) -> bool:
        return isinstance(self.layers[source[0]], RawTensor)

    def _join_states(self) -> None:
        """Join the entries of a state with those of the argument that it comes back as."""
        for entry in self.states.entries:
            for f in range(entry.size if entry.argument else 0):
                place = (entry.name, "input", f)
                self.neurons.join(place, (ARGUMENT, entry.argument, f))
            if entry.argument:
                self._join_fed_readers(entry)
        for copy, entry in self.states.copies:
            for f in range(entry.size):
                self.neurons.join((entry.name, "input", f), (copy.name, "input", f))

    def _join_fed_readers(self, entry: ReturnedEntry) -> None:
        """Join features that read a given state together with neurons, as in `r * h`."""
        names = argument_names(self.probe.model, self.probe.arguments)
        index = names.index(entry.argument)
        leaf = list(tensors_in(self.probe.arguments))[index]
        fed = {port: torch.stack(calls).any(0) for port, calls in self.couplings[0].fed.items()}
        moved = self.by_argument[index].items()
        wanted = {port: features & fed[port] for port, features in moved if port[2] == "input"}
        wanted = {port: features for port, features in wanted.items() if features.any()}
        axis = entry.axis % leaf.dim()
        readers = features_of(self.probe, index, leaf, axis, wanted) if wanted else None
        for port, reads in (readers or {}).items():
            for f, j in reads.nonzero().tolist():
                self.neurons.join((ARGUMENT, entry.argument, j), (port[0], port[2], f))

    def _join_inputs(self) -> None:
        """Join features that read the same entry of an argument; note those that nothing feeds."""
        fed = {port: torch.stack(calls) for c in self.couplings for port, calls in c.fed.items()}
        free = {port: ~calls.any(0) for port, calls in fed.items()}
        picked = {port: torch.zeros_like(features) for port, features in free.items()}
        for found in find_inputs(self.probe, self.by_argument, free):
            for port, reads in found.readers.items():
                picked[port] |= reads.any(1)
                for f, entry in reads.nonzero().tolist():
                    self.neurons.join((ARGUMENT, found.name, entry), (port[0], port[2], f))
        for port, calls in fed.items():
            name, what, space = port
            idle = ~calls
            if space == "input":  # never fed, and from no argument: made by the code
                idle &= calls.any(0) | ~picked[port]
            if idle.any() and not isinstance(self.layers[name], ReturnedEntry):
                self.outside[self.layers[name].full_name(what)] = None
        for name in sorted(self.probe.kept_states):  # kept at full width from before a cut
            self.outside[self.layers[name].full_name("state")] = None

    def _unreached(self) -> Iterator[Refusal]:
        """Yield layers that the example does not reach, and RNNs that cannot be cut."""
        for name, module in self.probe.model.named_modules():
            layer = self.probe.known.get(name)
            if reason := refusal_of(name, module, self.probe.model):
                yield Refusal(Group(name, 0, ()), reason)
            elif layer is not None and name not in self.layers and not self._is_used(layer):
                yield Refusal(Group(name, 0, ()), "the example never calls it")

    def _is_used(self, layer: Layer) -> bool:
        own = (layer.full_name(parameter) for parameter in layer.module._parameters)
        return any(parameter in self.probe.used for parameter in own)


def _lists(rows: Tensor) -> list[list[int]]:
    """Return the columns that are true in each row."""
    found: list[list[int]] = [[] for _ in rows]
    for row, column in rows.nonzero().tolist():
        found[row].append(column)
    return found


def _spread(
    lists: dict[Source, list[list[int]]], often: set[Source]
) -> dict[tuple[Source, int], Source]:
    """Return neurons that several features read together with different neurons of another source.

    An attention weight is one: it scales every neuron of the sequence, so it ties none of them.
    Only sources in `often` have a neuron that more than one feature reads.
    """
    seen: dict[tuple[Source, int, Source], int] = {}
    wide: dict[tuple[Source, int], Source] = {}
    for row in zip(*lists.values(), strict=True) if often else ():
        reading = [(s, channels) for s, channels in zip(lists, row, strict=True) if channels]
        for source, channels in reading:
            for other, others in reading if source in often else ():
                if other == source:
                    continue
                for channel in channels:
                    if seen.setdefault((source, channel, other), others[0]) != others[0]:
                        wide[source, channel] = other
    return wide
