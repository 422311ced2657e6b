"""The Plan: which neurons can go, which have to stay and why, as plain frozen data.

Plan ── Group "lstm.l0"   ── what its neurons own, in group.py
     ── Group "decoder.input"
     ── Refusal           ── neurons that have to stay, and why
"""

import fnmatch
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from torch import Tensor, nn

from thinrnn._table import table
from thinrnn.errors import PlanError
from thinrnn.group import Group, NormSlice, SizeAttribute, Slice

FORMAT = 1


@dataclass(frozen=True)
class Refusal:
    """Neurons that cannot be removed, and why.

    Args:
        group: the neurons.
        reason: one sentence for the user.
        undeclared: parameters outside any layer that may read the neurons; if they do,
            `plan.using(group.name, parameter, dim=...)` declares them and lifts the refusal.

    >>> for refusal in find_groups(nn.LSTM(3, 8), torch.zeros(5, 2, 3)).refused:
    ...     print(refusal.group.name, "-", refusal.reason)
    l0 - returned to the caller
    """

    group: Group
    reason: str
    undeclared: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Which neurons of a model can be removed, as plain data.

    `find_groups` makes a plan; you can also write one yourself. `print(plan)` shows a table.
    `len(plan)`, `for group in plan` and `plan["lstm.l0"]` work as for a collection of groups.

    Args:
        groups: the neurons that can be removed.
        refused: those that cannot, with the reasons.
        outside: arguments of modules ("lstm.state", "lstm.input") that the model's own code fills
            at full width, for example with zeros; the small model selects the kept entries there.
        applied: how often a step of the example applies each matrix, by name, which is what
            mult-adds are counted by: 8 for a convolution with eight places for each step of the
            recurrent layer. Without it, each matrix counts once.

    Raises:
        PlanError: if two groups have one name, or a name that is looked up is not in the plan.

    >>> plan = find_groups(nn.LSTM(3, 8, num_layers=2), torch.zeros(5, 2, 3))
    >>> [(group.name, group.size) for group in plan]
    [('input', 3), ('l0', 8)]
    >>> plan.without("input")["l0"].owners("read")
    ['weight_hh_l0', 'weight_ih_l1']
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    groups: tuple[Group, ...]
    refused: tuple[Refusal, ...] = ()
    outside: tuple[str, ...] = ()
    applied: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [group.name for group in self.groups]
        for name, times in Counter(names).items():
            if times > 1:
                raise PlanError(f"two groups are called '{name}': give each its own name.")

    @cached_property
    def _by_name(self) -> dict[str, Group]:
        return {group.name: group for group in self.groups}

    def __getitem__(self, name: str) -> Group:
        if name in self._by_name:
            return self._by_name[name]
        for refusal in self.refused:
            if refusal.group.name == name:
                raise PlanError(f"group '{name}' is refused: {refusal.reason}")
        raise PlanError(f"no group '{name}' in this plan; there are: {_listed(self._by_name)}.")

    def __iter__(self) -> Iterator[Group]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def only(self, *patterns: str) -> "Plan":
        """Return the plan with only the groups whose names match a pattern, such as `"lstm.*"`.

        Raises:
            PlanError: if a pattern matches no group.
        """
        return replace(self, groups=tuple(g for g in self.groups if self._hit(g, patterns)))

    def without(self, *patterns: str) -> "Plan":
        """Return the plan without the groups whose names match a pattern.

        Raises:
            PlanError: if a pattern matches no group.
        """
        return replace(self, groups=tuple(g for g in self.groups if not self._hit(g, patterns)))

    def _hit(self, group: Group, patterns: Sequence[str]) -> bool:
        for pattern in patterns:
            if not any(fnmatch.fnmatchcase(g.name, pattern) for g in self.groups):
                known = _listed(self._by_name)
                raise PlanError(f"no group matches '{pattern}'; there are: {known}.")
        return any(fnmatch.fnmatchcase(group.name, pattern) for pattern in patterns)

    def using(self, group: str, parameter: str, *, dim: int, at: Iterable[int] = (0,)) -> "Plan":
        """Return the plan in which `group` is also read by a parameter outside any layer.

        A group that was refused because of this parameter is refused no longer. `verify` proves
        the claim later.

        Args:
            group: the group's name.
            parameter: the parameter's name.
            dim: the dimension along which it reads the neurons.
            at: first positions: neuron j owns position `start + j` for each `start`.

        Raises:
            PlanError: if there is no such group, or it is refused for another reason.
        """
        refusals = {r.group.name: r for r in self.refused}
        old = refusals[group].group if group in refusals else self[group]
        added = Slice(parameter, dim, "read", tuple((start, 0, old.size) for start in at))
        new = replace(old, slices=(*old.slices, added))
        if group not in refusals:
            return replace(self, groups=tuple(new if g is old else g for g in self.groups))
        refusal = refusals[group]
        if parameter not in refusal.undeclared:
            raise PlanError(
                f"group '{group}' stays refused even if '{parameter}' reads it: {refusal.reason}"
            )
        left = tuple(p for p in refusal.undeclared if p != parameter)
        others = tuple(r for r in self.refused if r is not refusal)
        if left:
            still = Refusal(new, f"also read by raw parameters: {', '.join(left)}", left)
            return replace(self, refused=(*others, still))
        return replace(self, groups=(*self.groups, new), refused=others)

    def fitted(self, model: nn.Module) -> "Plan":
        """Return the plan with dimensions counted from the front, if it fits the model."""
        self.check(model)
        tensors = named_tensors(model)
        groups = []
        for g in self.groups:
            slices = (replace(s, dim=s.dim % tensors[s.parameter].dim()) for s in g.slices)
            groups.append(replace(g, slices=tuple(slices)))
        return replace(self, groups=tuple(groups))

    def check(self, model: nn.Module) -> None:
        """Raise unless all slices and attributes are in the model and no position has two owners.

        Raises:
            PlanError: the plan does not fit the model.
        """
        tensors = named_tensors(model)
        owned: dict[tuple[int, int], dict[int, tuple[str, int]]] = {}
        setters: dict[str, str] = {}
        for group in self.groups:
            if all(s.role == "produce" for s in group.slices):
                raise PlanError(
                    f"group '{group.name}' is read by nothing, so no gate can close its neurons: "
                    "add a slice with role 'read', or leave the group out."
                )
            for attribute in group.sets:
                _check_attribute(group, attribute, model)
                other = setters.setdefault(attribute.name, group.name)
                if other != group.name:
                    raise PlanError(
                        f"groups '{other}' and '{group.name}' both set '{attribute.name}': neurons "
                        "of one size must be one group."
                    )
            for s in group.slices:
                _check_slice(group, s, tensors)
            for norm in group.norms:
                _check_norm(group, norm, model)
            named = max((n + length for s in group.slices for _, n, length in s.runs), default=0)
            if group.size > named:
                raise PlanError(
                    f"group '{group.name}' has {group.size} neurons, but its slices name only the "
                    f"first {named}: correct the size."
                )
            for s in group.slices:
                tensor = tensors[s.parameter]
                positions, neurons = s.index()
                taken = owned.setdefault((id(tensor), s.dim % tensor.dim()), {})
                for p, n in zip(positions.tolist(), neurons.tolist(), strict=True):
                    if taken.setdefault(p, (group.name, n)) != (group.name, n):
                        raise PlanError(
                            f"position {p} of '{s.parameter}', dim {s.dim}, belongs to neuron {n} "
                            f"of '{group.name}' and to neuron {taken[p][1]} of '{taken[p][0]}': "
                            "such neurons must be one group."
                        )

    def to_json(self) -> str:
        """Return the plan as JSON text."""
        return json.dumps({"thinrnn_plan": FORMAT, **asdict(self)}, indent=1)

    @staticmethod
    def from_json(text: str) -> "Plan":
        """Return the plan in a JSON text, as `to_json` writes it.

        Raises:
            PlanError: if the text is not a plan.
        """
        from thinrnn._file_formats import PlanFile
        from thinrnn._files import parse_json

        return parse_json(text.encode(), PlanFile, "the plan", PlanError).plan()

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("group", "size", "produced by", "read by", "sets")]
        for g in self.groups:
            made = ", ".join(g.owners("produce")) or "the caller (input selection)"
            sets = ", ".join(attribute.name for attribute in g.sets)
            readers = [*g.owners("read"), *(f"the caller ({s.returned})" for s in g.states)]
            rows.append((g.name, str(g.size), made, ", ".join(readers), sets))
        if not any(g.sets for g in self.groups):
            rows = [row[:-1] for row in rows]
        norms = dict.fromkeys(norm.module for g in self.groups for norm in g.norms)
        refused = [(r.group.name, str(r.group.size), r.reason) for r in self.refused]
        text = table(rows, "<><", rule=True)
        if norms:
            text += f"\n\nan approximation: norms over open neurons in {', '.join(norms)}"
        if refused:
            text += "\n\n" + table([("refused", "size", "why"), *refused], "<><", rule=True)
        return text


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return every parameter and buffer under every one of its names."""
    found: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    found.update(model.named_buffers(remove_duplicate=False))
    return {name: t for name, t in found.items() if not name.startswith("thinrnn:")}


def _check_slice(group: Group, s: Slice, tensors: dict[str, Tensor]) -> None:
    where = f"group '{group.name}' names '{s.parameter}'"
    if s.parameter not in tensors:
        raise PlanError(
            f"{where}, which the model does not have. Was the plan made for another model? Make it "
            "again with find_groups(model, example)."
        )
    if not s.runs or any(min(p, n) < 0 or length < 1 for p, n, length in s.runs):
        raise PlanError(
            f"{where}, dim {s.dim}, with runs {s.runs}: each is (first position, first neuron, "
            "length), counted from 0, and there must be at least one."
        )
    shape = tuple(tensors[s.parameter].shape)
    dim_size = shape[s.dim] if -len(shape) <= s.dim < len(shape) else 0
    last_position = max(p + length for p, _, length in s.runs) - 1
    last_neuron = max(n + length for _, n, length in s.runs) - 1
    if last_position >= dim_size or last_neuron >= group.size:
        raise PlanError(
            f"{where}, dim {s.dim}, up to position {last_position} and neuron {last_neuron}, but "
            f"its shape is {shape} and the group has {group.size} neurons. Was the plan made for "
            "another size?"
        )
    if sum(length for *_, length in s.runs) > dim_size:
        raise PlanError(f"{where}, dim {s.dim}, more often than its shape {shape} has positions.")


def _check_attribute(group: Group, attribute: SizeAttribute, model: nn.Module) -> None:
    try:
        module, name = attribute.home(model)
        found = vars(module).get(name)
    except AttributeError:
        found = None
    wanted = attribute.value(group.size)
    if found != wanted:
        raise PlanError(
            f"group '{group.name}' sets the attribute '{attribute.name}', which is {found} in this "
            f"model where the plan has {wanted}. Was the plan made for another model or size?"
        )


def _check_norm(group: Group, norm: NormSlice, model: nn.Module) -> None:
    module = dict(model.named_modules()).get(norm.module)
    shape = getattr(module, "normalized_shape", ()) or (getattr(module, "num_channels", 0),)
    last = max(first + length for first, _, length in norm.runs)
    if last > shape[0]:
        raise PlanError(
            f"group '{group.name}' goes through the norm '{norm.module}' up to channel {last - 1}, "
            f"which has {shape[0]} channels in this model. Was the plan made for another model?"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
