"""The final check of a plan: cut random neurons for real and compare the outputs."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import nn

from thinrnn._discovery import progress
from thinrnn._discovery.alternatives import alternatives, numbers_read, with_raws
from thinrnn._gates.attach import attach_, attached, detach_
from thinrnn._model.isolation import precision_of, run, where_in_user_code
from thinrnn._model.tree import Arguments
from thinrnn._surgery.compact import small_copy
from thinrnn._surgery.cut import neurons_to_keep
from thinrnn._surgery.verify import compare, tolerance_for
from thinrnn.errors import HardCodedSizeError, PlanError, ThinRNNError
from thinrnn.group import Group, SizeAttribute, Slice
from thinrnn.plan import Plan, Refusal, named_tensors

MIXED_TOO = ". Cutting them along changed the outputs: do they mix the neurons, as a norm does?"
CUTS = 4  # the sizes of a single cut may fit by chance


def prove(
    plan: Plan,
    model: nn.Module,
    examples: list[Arguments],
    can_train: bool,
    raws_of: Callable[[Group], Iterable[str]],
) -> Plan:
    """Return the plan less the groups whose removal changes the outputs or breaks the code.

    Where the code reads the size from an attribute of the model, the attribute follows. Where only
    unequal sizes break the code (it stacks the states of an RNN's layers, or halves a row), the
    neurons in question share their gates instead, and the parts keep one size. Where raw tensors
    may read a group that fails (`raws_of`), it is tried with these cut along. With `can_train` the
    small model also has to run in training mode.
    """
    trial = _Trial(model, examples, can_train)
    place = {group.name: i for i, group in enumerate(plan.groups)}
    good, bad = trial.parted(plan, [], list(plan.groups))
    sizes = numbers_read(model, examples) if bad else {}
    seen = {_owned(group) for group, _ in bad}
    for group, members in alternatives([group for group, _ in bad], sizes):
        left = {group.name for group, _ in bad}
        is_new = _owned(group) not in seen
        seen.add(_owned(group))
        if is_new and members <= left and not trial.failure(replace(plan, groups=(*good, group))):
            good.append(group)
            place.setdefault(group.name, min(place[name] for name in members))
            bad = [(group, reason) for group, reason in bad if group.name not in members]
    failed = [Refusal(group, reason, tuple(raws_of(group))) for group, reason in bad]
    tensors = named_tensors(model)
    refused = []
    for refusal in (*plan.refused, *failed):
        tried = False
        names = refusal.undeclared and {*raws_of(refusal.group), *refusal.undeclared}
        raws = {name: tensor for name, tensor in tensors.items() if name in names}
        for group in with_raws(refusal.group, raws):
            if not trial.failure(replace(plan, groups=(*good, group))):
                good.append(group)
                break
            tried = True
        else:
            more = MIXED_TOO if tried and refusal in plan.refused else ""
            refused.append(replace(refusal, reason=refusal.reason + more))
    groups = sorted(good, key=lambda group: place.get(group.name, len(place)))
    return replace(plan, groups=tuple(groups), refused=tuple(refused))


class _Trial:
    """Cuts some neurons of a plan, gives the others soft gates, and compares the results."""

    def __init__(self, model: nn.Module, examples: list[Arguments], can_train: bool) -> None:
        self.model, self.examples, self.can_train = model, examples, can_train
        self.tolerance = tolerance_for(precision_of(model))

    def failure(self, plan: Plan) -> str:
        """Return what goes wrong with a plan, or an empty text."""
        try:
            attach_(self.model, plan)
        except PlanError as error:  # two groups own one position
            return str(error)
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
        progress.tell(f"trial cut {number + 1} of {CUTS}, {len(attached(self.model).gates)} groups")
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
        reason = self.failure(replace(plan, groups=(*good, *groups))) if groups else ""
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


def _owned(group: Group) -> tuple[frozenset[Slice], tuple[SizeAttribute, ...]]:
    """Return what tells whether two groups are cut in the same way."""
    return frozenset(group.slices), group.sets


def _relies_on_size(error: BaseException) -> str:
    return f"the model's code relies on its size: {error} [{where_in_user_code(error)}]"
