"""find_groups: from a model and one example call to a Plan.

    layers ──▶ probe ──▶ coupling ──▶ neurons (what must go together) ──▶ groups ──▶ trial ──▶ Plan

Structure says what a neuron owns inside a layer; probes say what feeds what between layers; tied
parameters join their owners; a trial cut, compared with the gated model, has the last word.
"""

import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn.coupling import Coupling, find_coupling
from thinrnn.errors import NoRecurrentLayerError, PlanError
from thinrnn.layers import RECURRENT, CellLayer, Layer, RNNLayer, layer_of, refusal_of
from thinrnn.plan import Group, Plan, Refusal, Slice
from thinrnn.probe import FunctionalLinear, Port, Probe, Source, flipped
from thinrnn.sandbox import fixed_randomness, fresh_copy
from thinrnn.tree import call_arguments, map_tensors, tensors_in
from thinrnn.trial import prove

MOST_OF_A_SPACE = 4  # neurons of one layer that may be tied into one (a GLU ties two)


def find_groups(model: nn.Module, example: Any) -> Plan:
    """Return the Plan of a model: its groups of removable neurons, and what is refused and why.

    `example` is what the model is called with once: a tensor, a tuple of positional arguments, or
    a dict of keyword arguments. The model is left as it was, mode, buffers and random state
    included.

    >>> lstm = nn.LSTM(3, 8, num_layers=2)
    >>> [group.name for group in find_groups(lstm, torch.zeros(5, 2, 3))]
    ['input', 'l0']
    """
    if "_thinrnn" in model.__dict__:
        raise PlanError("the model has gates already; find_groups wants it before attach_.")
    arguments = call_arguments(example)
    with fixed_randomness(), torch.no_grad():
        clone, given = fresh_copy(model, arguments)
        _leave_special_points(clone)
        finder = _Finder(Probe(clone, given))
        plan = finder.plan()
        return prove(plan, clone, given)


def _leave_special_points(model: nn.Module) -> None:
    """Replace exact zeros among the parameters: a zero weight hides who reads what."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.is_floating_point():
            noise = 0.1 * torch.randn(parameter.shape, generator=generator).to(parameter)
            parameter.data = torch.where(parameter == 0, noise, parameter)


class _Finder:
    """Joins what belongs together into neurons, and neurons into groups."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.layers = probe.layers
        self.spaces = {
            (name, space): layer.spaces[space]
            for name, layer in self.layers.items()
            for space in layer.spaces
        }
        self.first: dict[Source, int] = {}
        for source, space in self.spaces.items():
            self.first[source] = self._new(space.size)
        self.kept_because: dict[int, str] = {}
        self.arguments: dict[int, str] = {}  # element -> argument name
        self.outside: dict[str, None] = {}

    parent: list[int]

    def _new(self, size: int) -> int:
        self.parent = getattr(self, "parent", [])
        start = len(self.parent)
        self.parent.extend(range(start, start + size))
        return start

    def root(self, element: int) -> int:
        while self.parent[element] != element:
            self.parent[element] = self.parent[self.parent[element]]
            element = self.parent[element]
        return element

    def join(self, a: int, b: int) -> None:
        a, b = self.root(a), self.root(b)
        self.parent[max(a, b)] = min(a, b)

    def keep(self, source: Source, reason: str, channels: Iterable[int] | None = None) -> None:
        chosen = range(self.spaces[source].size) if channels is None else channels
        for channel in chosen:
            self.kept_because.setdefault(self.first[source] + channel, reason)

    def plan(self) -> Plan:
        """Return the plan that the probes suggest; the trial comes after."""
        sources = {s: space.size for s, space in self.spaces.items() if s[1] != "input"}
        coupling = find_coupling(self.probe, sources)
        self._need_recurrence(coupling)
        self._join_tied()
        carried = self._join_arguments(coupling)
        for port in self.probe.base.intakes:
            self._join_readers(port, coupling)
            self._note_outside(port, coupling)
        undeclared = self._keep_leaks(coupling, carried)
        groups, refused = self._collect(undeclared)
        return Plan(tuple(groups), (*refused, *self._unreached()), tuple(self.outside))

    def _need_recurrence(self, coupling: Coupling) -> None:
        cells = any(isinstance(layer, RECURRENT) for layer in self.layers.values())
        loops = any(p[0] == s[0] for p, r in coupling.reads.items() for s in r)
        if not cells and not loops:
            seen = sorted({type(m).__name__ for m in self.probe.model.modules()})
            raise NoRecurrentLayerError(
                "the example reaches no recurrent layer that thinrnn knows (nn.LSTM, nn.GRU, "
                f"nn.RNN, their cells, or a loop over layers); the model has: {', '.join(seen)}."
            )

    def _join_tied(self) -> None:
        """Join neurons that own the same position of one parameter."""
        owners: dict[tuple[int, int], list[tuple[Source, int]]] = defaultdict(list)
        users: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        tensors = {name: id(t) for name, t in self._tensors()}
        for source, space in self.spaces.items():
            for slot in space.slots:
                key = tensors[self.full_name(source[0], slot.parameter)]
                users[key][source[0]].add(slot.dim)
                for start in slot.starts:
                    owners[key, slot.dim].append((source, start))
        for (key, dim), places in owners.items():
            taken: dict[int, int] = {}
            lacking = [name for name, dims in users[key].items() if dim not in dims]
            for source, start in places:
                first = self.first[source]
                if lacking:
                    self.keep(source, f"its parameter is shared with {lacking[0]}, which needs all")
                for j in range(self.spaces[source].size):
                    self.join(taken.setdefault(start + j, first + j), first + j)

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.probe.model.named_parameters(remove_duplicate=False)
        yield from self.probe.model.named_buffers(remove_duplicate=False)

    def full_name(self, layer: str, parameter: str) -> str:
        if isinstance(self.layers[layer], FunctionalLinear):
            return parameter
        return f"{layer}.{parameter}" if layer else parameter

    def _join_readers(self, port: Port, coupling: Coupling) -> None:
        """Join each feature with the neurons that it reads."""
        name, _, space = port
        first = self.first[name, space]
        reads = coupling.reads.get(port, {})
        lists = {s: [row.nonzero().flatten().tolist() for row in c] for s, c in reads.items()}
        wide = _spread(lists)
        for (source, channel), other in wide.items():
            label = self.layers[source[0]].label(source[1])
            reason = f"'{label}' acts on many neurons of '{self._label(other)}' at once"
            self.keep(source, reason, [channel])
        for f in range(self.spaces[name, space].size):
            clean = [(s, c) for s, rows in lists.items() for c in rows[f] if (s, c) not in wide]
            for source, channel in clean:
                self.join(first + f, self.first[source] + channel)
            if not clean and any(bool(m[f]) for m in coupling.mixed.get(port, {}).values()):
                self.keep((name, space), f"mixed with others before '{name}' reads it", [f])

    def _label(self, source: Source) -> str:
        return self.layers[source[0]].label(source[1])

    def _note_outside(self, port: Port, coupling: Coupling) -> None:
        """Remember arguments that the model fills itself, at full width, in some call."""
        name, what, space = port
        calls = torch.stack(coupling.fed[port])
        idle = ~calls
        if space == "input":
            idle &= calls.any(0)
        if idle.any():
            self.outside[f"{name}.{what}" if name else what] = None

    def _keep_leaks(self, coupling: Coupling, carried: set[str]) -> dict[Source, list[str]]:
        """Keep what is returned or mixed; return the raw parameters behind it, per source."""
        states = self._returned_states(carried)
        undeclared: dict[Source, list[str]] = {}
        mixed_at: dict[Source, Port] = {}
        for port, mixed in coupling.mixed.items():
            for source in mixed:
                mixed_at.setdefault(source, port)
        for source, leaves in coupling.returned.items():
            visible = [i for i in leaves if source[0] not in states.get(i, ())]
            if not visible and source not in mixed_at:
                continue
            raw = self._raw(coupling.touched[source])
            label = self._label(source)
            if raw:
                undeclared[source] = raw
                more = f"plan.using('{label}', '{raw[0]}', dim=...)"
                reason = f"also read by raw parameters: {', '.join(raw)}; declare them with {more}"
            elif visible:
                reason = "returned to the caller"
            else:
                via = self._mixers(coupling.touched[source])
                reason = f"mixed with others {via}before '{mixed_at[source][0]}' reads it"
            self.keep(source, reason)
        return undeclared

    def _raw(self, touched: set[str]) -> list[str]:
        """Return the touched parameters that the user's own code holds or uses."""
        return sorted(name for name in touched if self._foreign_home(name) is None)

    def _mixers(self, touched: set[str]) -> str:
        homes = [self._foreign_home(name) for name in sorted(touched)]
        named = dict.fromkeys(f"'{n}' ({k})" for home in homes if home for n, k in [home])
        return f"by {', '.join(named)} " if named else ""

    def _foreign_home(self, parameter: str) -> tuple[str, str] | None:
        """Return the module of torch, other than a known layer, that a parameter is inside of."""
        path = parameter.split(".")[:-1]
        containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList)
        for end in range(1, len(path) + 1):
            name = ".".join(path[:end])
            module = self.probe.model.get_submodule(name)
            is_torchs = type(module).__module__.startswith("torch.nn.")
            if is_torchs and not isinstance(module, containers) and not layer_of(name, module):
                return name, type(module).__name__
        return None

    def _returned_states(self, carried: set[str]) -> dict[int, set[str]]:
        """Return, per returned tensor, the layers whose state it is and which take it back."""
        parameters = inspect.signature(self.probe.model.forward).parameters.values()
        places = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        args, kwargs = self.probe.arguments
        has_room = len(places) > sum(a is not None for a in [*args, *kwargs.values()])
        leaves = list(tensors_in(self.probe.base.returned))
        found: dict[int, set[str]] = defaultdict(set)
        for name, layer in self.layers.items():
            if not isinstance(layer, RECURRENT) or not (has_room or name in carried):
                continue
            for state in _states(layer, self.probe.results[name][-1]):
                for i, leaf in enumerate(leaves):
                    if leaf.shape == state.shape and torch.equal(leaf, state):
                        found[i].add(name)
        return found if len(found) < len(leaves) else {}

    def _join_arguments(self, coupling: Coupling) -> set[str]:
        """Join features that read the same input of the model; return layers given a state."""
        carried: set[str] = set()
        free = {
            port: ~torch.stack(fed).any(0) for port, fed in coupling.fed.items()
        }  # features that no layer feeds
        for index, leaf in enumerate(tensors_in(self.probe.arguments)):
            if not leaf.is_floating_point() or leaf.dim() == 0:
                continue
            moved = self._moved_by_argument(index, torch.ones_like(leaf, dtype=torch.bool))
            carried |= {p[0] for p, m in moved.items() if p[1] == "state" and m.any()}
            wanted = {p: m & free[p] for p, m in moved.items() if p[2] == "input"}
            wanted = {p: m for p, m in wanted.items() if m.any()}
            for axis in range(leaf.dim() - 1, -1, -1) if wanted else ():
                found = self._channels(index, leaf, axis, wanted)
                if found is not None:
                    self._join_argument(index, leaf.shape[axis], found)
                    break
        return carried

    def _moved_by_argument(self, index: int, mask: Tensor) -> dict[Port, Tensor]:
        leaves = iter(range(len(list(tensors_in(self.probe.arguments)))))

        def change(leaf: Tensor) -> Tensor:
            return flipped(mask)(leaf) if next(leaves) == index else leaf

        arguments = map_tensors(self.probe.arguments, change)
        moved = self.probe.moved(self.probe.look(arguments=arguments))
        return {port: torch.stack(calls).any(0) for port, calls in moved.items()}

    def _channels(
        self, index: int, leaf: Tensor, axis: int, wanted: dict[Port, Tensor]
    ) -> dict[Port, Tensor] | None:
        """Return which position along an axis each feature reads, if each reads just one."""
        size = leaf.shape[axis]
        left = {p: m[:, None] & torch.ones(size, dtype=torch.bool) for p, m in wanted.items()}
        shape = [-1 if i == axis else 1 for i in range(leaf.dim())]
        for bit in range((size - 1).bit_length()):
            for value in (1, 0):
                chosen = (torch.arange(size) >> bit & 1) == value
                mask = chosen.view(shape).expand(leaf.shape)
                moved = self._moved_by_argument(index, mask)
                for port, candidates in left.items():
                    candidates &= ~(~moved[port][:, None] & chosen)
        good = all((c.sum(1) == wanted[p]).all() for p, c in left.items())
        return left if good else None

    def _join_argument(self, index: int, size: int, found: dict[Port, Tensor]) -> None:
        start = self._new(size)
        name = self._argument_name(index)
        self.arguments.update((start + j, name) for j in range(size))
        for (layer, _, space), candidates in found.items():
            for feature, channel in candidates.nonzero().tolist():
                self.join(start + channel, self.first[layer, space] + feature)

    def _argument_name(self, index: int) -> str:
        args, kwargs = self.probe.arguments
        names = [p.name for p in inspect.signature(self.probe.model.forward).parameters.values()]
        given = [(names[min(i, len(names) - 1)], a) for i, a in enumerate(args)]
        for name, value in [*given, *kwargs.items()]:
            leaves = len(list(tensors_in(value)))
            if index < leaves:
                return name if leaves == 1 else f"{name}.{index}"
            index -= leaves
        raise AssertionError("an argument that is not there")

    def _collect(self, undeclared: dict[Source, list[str]]) -> tuple[list[Group], list[Refusal]]:
        """Return groups and refusals: neurons with the same producers stand together."""
        neurons: dict[int, list[tuple[Source, int]]] = defaultdict(list)
        for source, space in self.spaces.items():
            for j in range(space.size):
                neurons[self.root(self.first[source] + j)].append((source, j))
        arguments = {self.root(e): name for e, name in self.arguments.items()}
        reasons: dict[int, str] = {}
        for element, reason in self.kept_because.items():
            reasons.setdefault(self.root(element), reason)
        buckets: dict[tuple[str, str, tuple[Source, ...]], list[int]] = defaultdict(list)
        for root, members in neurons.items():
            makers = tuple(dict.fromkeys(s for s, _ in members if s[1] != "input"))
            name = "+".join(self._label(s) for s in makers)
            reason = reasons.get(root) or self._tied_too_much(members)
            if not makers:
                readers = [self._label(s) for s, _ in members]
                name = arguments.get(root) or readers[0]
                if any(isinstance(self.layers[s[0]], FunctionalLinear) for s, _ in members):
                    reason = reason or "read by a function call, where no feature can be picked"
            buckets[name, reason, makers].append(root)
        groups, refused = [], []
        for (name, reason, makers), roots in buckets.items():
            group = self._group(name, [neurons[root] for root in sorted(roots)])
            if not reason and all(s.role == "produce" for s in group.slices):
                reason = "no layer reads it"
            if reason and makers:
                raw = tuple(dict.fromkeys(p for s in makers for p in undeclared.get(s, ())))
                refused.append(Refusal(group, reason, raw))
            elif not reason:
                groups.append(group)
        return _uniquely_named(groups), refused

    def _tied_too_much(self, members: list[tuple[Source, int]]) -> str:
        per_space: dict[Source, int] = defaultdict(int)
        for source, _ in members:
            per_space[source] += source[1] != "input"
        source, most = max(per_space.items(), key=lambda item: item[1])
        if most > MOST_OF_A_SPACE and most > 1:
            return f"{most} neurons of '{self._label(source)}' can only go together"
        return ""

    def _group(self, name: str, neurons: list[list[tuple[Source, int]]]) -> Group:
        places: dict[tuple[str, int, str], tuple[list[int], list[int]]] = defaultdict(
            lambda: ([], [])
        )
        for n, members in enumerate(neurons):
            for source, j in members:
                for slot in self.spaces[source].slots:
                    parameter = self.full_name(source[0], slot.parameter)
                    positions, owners = places[parameter, slot.dim, slot.role]
                    for start in slot.starts:
                        positions.append(start + j)
                        owners.append(n)
        slices = (
            Slice.of(parameter, dim, role, torch.tensor(p), torch.tensor(o))  # type: ignore[arg-type]
            for (parameter, dim, role), (p, o) in places.items()
        )
        return Group(name, len(neurons), tuple(slices))

    def _unreached(self) -> Iterator[Refusal]:
        """Yield known layers that the example does not reach or that cannot be cut."""
        for name, module in self.probe.model.named_modules():
            layer = layer_of(name, module)
            if layer is not None and name not in self.layers and isinstance(layer, RECURRENT):
                yield Refusal(Group(name, 0, ()), "the example never calls it")
            if isinstance(module, (nn.RNNBase, nn.RNNCellBase)) and refusal_of(module):
                yield Refusal(Group(name, 0, ()), refusal_of(module))


def _spread(lists: dict[Source, list[list[int]]]) -> dict[tuple[Source, int], Source]:
    """Return neurons that several features read together with different neurons of another source.

    An attention weight is one: it scales every neuron of the sequence, so it ties none of them.
    """
    seen: dict[tuple[Source, int, Source], int] = {}
    wide: dict[tuple[Source, int], Source] = {}
    if len(lists) < 2:
        return wide
    for row in zip(*lists.values(), strict=True):
        reading = [(s, channels) for s, channels in zip(lists, row, strict=True) if channels]
        for source, channels in reading:
            for other, others in reading:
                if other == source:
                    continue
                for channel in channels:
                    if seen.setdefault((source, channel, other), others[0]) != others[0]:
                        wide[source, channel] = other
    return wide


def _states(layer: Layer, result: Any) -> list[Tensor]:
    if isinstance(layer, RNNLayer):
        return list(tensors_in(result[1]))
    assert isinstance(layer, CellLayer)
    return list(tensors_in(result))


def _uniquely_named(groups: list[Group]) -> list[Group]:
    seen: dict[str, int] = defaultdict(int)
    named = []
    for group in groups:
        seen[group.name] += 1
        again = seen[group.name]
        name = group.name if again == 1 else f"{group.name}#{again}"
        named.append(Group(name, group.size, group.slices))
    return named


