"""The final check of a plan: cut random neurons for real and compare the outputs."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from thinrnn._gates.attach import attach_, attached, detach_
from thinrnn._model.isolation import precision_of, run, where_in_user_code
from thinrnn._model.tree import Arguments
from thinrnn._surgery.compact import small_copy
from thinrnn._surgery.cut import neurons_to_keep
from thinrnn._surgery.verify import compare, tolerance_for
from thinrnn.errors import HardCodedSizeError, ThinRNNError
from thinrnn.plan import Group, Plan, Refusal, Role, Slice

CUTS = 4  # the sizes of a single cut may fit by chance
PARTS = (2, 3, 4)  # equal parts of a group that the code may need to stay equal


def prove(
    plan: Plan,
    model: nn.Module,
    examples: list[Arguments],
    *,
    can_train: bool,
) -> Plan:
    """Return the plan less the groups whose removal changes the outputs or breaks the code.

    Where only unequal sizes break the code (it stacks the states of an RNN's layers, or halves a
    row), the neurons in question share their gates instead, and the parts keep one size. With
    `can_train` the small model also has to run in training mode.
    """
    if not plan.groups:
        return plan
    trial = _Trial(model, examples, can_train)
    place = {group.name: i for i, group in enumerate(plan.groups)}
    good, bad = trial.parted(plan, [], list(plan.groups))
    for group, members in _with_equal_parts([group for group, _ in bad]):
        left = {group.name for group, _ in bad}
        if members <= left and not trial.failure(replace(plan, groups=(*good, group))):
            good.append(group)
            place.setdefault(group.name, min(place[name] for name in members))
            bad = [(group, reason) for group, reason in bad if group.name not in members]
    groups = sorted(good, key=lambda group: place[group.name])
    refused = (*plan.refused, *(Refusal(group, reason) for group, reason in bad))
    return replace(plan, groups=tuple(groups), refused=refused)


class _Trial:
    """Cuts some neurons of a plan, gives the others soft gates, and compares the results."""

    def __init__(self, model: nn.Module, examples: list[Arguments], can_train: bool) -> None:
        self.model, self.examples, self.can_train = model, examples, can_train
        self.tolerance = tolerance_for(precision_of(model))

    def failure(self, plan: Plan) -> str:
        """Return what goes wrong with a plan, or an empty text."""
        attach_(self.model, plan)
        try:
            found = (self._failure_of_cut(number) for number in range(CUTS))
            return next((reason for reason in found if reason), "")
        except HardCodedSizeError as error:
            return _relies_on_size(error.__cause__ or error)
        except ThinRNNError as error:
            return str(error)
        finally:
            detach_(self.model)

    def _failure_of_cut(self, number: int) -> str:
        generator = torch.Generator().manual_seed(number)
        for i, gate in enumerate(attached(self.model).gates.values()):
            soft = torch.rand(gate.size, generator=generator) * 4 - 2
            # One neuron more where the group's own bit is set, and none in the last cut: code that
            # needs an even number, of one group or of two side by side, fails in one of them.
            more = (i % (2 ** (CUTS - 1) - 1) + 1) >> number & 1
            closed = gate.size // 2 - i % max(gate.size // 3, 1) + more
            closed = min(max(closed, 1), gate.size - 1)
            first = torch.randperm(gate.size, generator=generator) < closed
            gate.log_alpha = torch.where(first, -9.0, soft)
        gated = attached(self.model)
        keep, _ = neurons_to_keep(gated, {name: gate.keep for name, gate in gated.gates.items()})
        small = small_copy(gated, keep)
        for arguments in self.examples:
            found = compare(self.model, small, arguments, self.tolerance, layers_too=True)
            if found.problem and not found.same_shapes:
                return "returned to the caller"
            if found.problem:
                where = f", first in '{found.first}'" if found.first else ""
                return (
                    f"a trial cut changed the outputs{where}: does the code compute with its size, "
                    "or draw random numbers of its size?"
                )
        trouble = self._training_error(small) if self.can_train else None
        return "" if trouble is None else _relies_on_size(trouble)

    def parted(
        self, plan: Plan, good: list[Group], groups: list[Group]
    ) -> tuple[list[Group], list[tuple[Group, str]]]:
        """Return the groups that can be cut together with the good ones, and why others cannot."""
        reason = self.failure(replace(plan, groups=(*good, *groups)))
        if not reason:
            return [*good, *groups], []
        if len(groups) == 1:
            return good, [(groups[0], reason)]
        half = len(groups) // 2
        good, first = self.parted(plan, good, groups[:half])
        good, second = self.parted(plan, good, groups[half:])
        return good, first + second

    def _training_error(self, model: nn.Module) -> Exception | None:
        try:
            run(model, self.examples[0], training=True)
        except Exception as error:
            return error
        return None


def _with_equal_parts(groups: list[Group]) -> Iterator[tuple[Group, set[str]]]:
    """Yield groups in which more neurons go together, and the groups that they are made of."""
    for own in _alike(groups):
        joined = _merged("+".join(g.name for g in own), own[0].size, own)
        yield joined, {group.name for group in own}
    for group in groups:
        for parts in PARTS:
            if group.size % parts == 0 and group.size > parts:
                yield _merged(group.name, group.size // parts, [group]), {group.name}


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


def _meets(group: Group, parameters: set[str]) -> bool:
    return any(s.parameter in parameters for s in group.slices)


def _merged(name: str, size: int, groups: list[Group]) -> Group:
    """Return a group in which neurons go together whose numbers agree modulo `size`."""
    owned: dict[tuple[str, int, Role], dict[int, int]] = defaultdict(dict)
    for group in groups:
        for s in group.slices:
            positions, neurons = (index.tolist() for index in s.index())
            of = ((p, n % size) for p, n in zip(positions, neurons, strict=True))
            owned[s.parameter, s.dim, s.role].update(of)
    slices = (
        Slice.of(*key, torch.tensor(list(own)), torch.tensor(list(own.values())))
        for key, own in owned.items()
    )
    return Group(name, size, tuple(slices))


def _relies_on_size(error: BaseException) -> str:
    return f"the model's code relies on its size: {error} [{where_in_user_code(error)}]"
