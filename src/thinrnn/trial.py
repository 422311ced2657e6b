"""The last word on a plan: cut random neurons for real and compare."""

import warnings
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from thinrnn.attach import attach_, attached, detach_
from thinrnn.compact import compact
from thinrnn.errors import HardCodedSizeError, ThinRNNError
from thinrnn.plan import Group, Plan, Refusal, Role, Slice
from thinrnn.sandbox import precision_of, run, where_in_user_code
from thinrnn.tree import Arguments
from thinrnn.verify import compare, tolerance_for


def prove(plan: Plan, model: nn.Module, arguments: Arguments, *, can_train: bool) -> Plan:
    """Return the plan less the groups whose removal changes the outputs or breaks the code.

    With `can_train` the small model also has to run in training mode.

    Where only unequal sizes break the code (it stacks or reshapes the states of an RNN's layers),
    the groups share their gates instead and keep one size.
    """
    trial = _Trial(model, arguments, can_train)
    if not plan.groups or not trial.failure(plan):
        return plan
    for own in _of_one_size(plan, model):
        plan = trial.with_one_size(plan, own)
    good, bad = trial.parted(plan, [], list(plan.groups))
    refused = (*plan.refused, *(Refusal(group, reason) for group, reason in bad))
    return replace(plan, groups=tuple(g for g in plan.groups if g in good), refused=refused)


class _Trial:
    """Cuts some neurons of a plan, gives the others soft gates, and looks what happens."""

    def __init__(self, model: nn.Module, arguments: Arguments, can_train: bool) -> None:
        self.model, self.arguments, self.can_train = model, arguments, can_train
        self.tolerance = tolerance_for(precision_of(model))

    def failure(self, plan: Plan) -> str:
        """Return what goes wrong with a plan, or an empty text."""
        attach_(self.model, plan)
        try:
            generator = torch.Generator().manual_seed(0)
            for i, gate in enumerate(attached(self.model).gates.values()):
                soft = torch.rand(gate.size, generator=generator) * 4 - 2
                closed = max(gate.size // 2 - i % (gate.size // 3 + 1), min(1, gate.size - 1))
                first = torch.randperm(gate.size, generator=generator) < closed
                gate.log_alpha = torch.where(first, -9.0, soft)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                small = compact(self.model)
            found = compare(self.model, small, self.arguments, self.tolerance)
        except HardCodedSizeError as error:
            return _relies_on_size(error.__cause__ or error)
        except ThinRNNError as error:
            return str(error)
        finally:
            detach_(self.model)
        if found.problem:
            where = f", first in '{found.first}'" if found.first else ""
            return (
                f"a trial cut changed the outputs{where}: does the code compute with its size, or "
                "draw random numbers of its size?"
            )
        trouble = self._training_error(small) if self.can_train else None
        return "" if trouble is None else _relies_on_size(trouble)

    def with_one_size(self, plan: Plan, own: list[Group]) -> Plan:
        """Return the plan with some groups joined, if that mends the code and nothing else does."""
        joined = _joined(own)
        apart = self.failure(replace(plan, groups=tuple(own)))
        if not apart or self.failure(replace(plan, groups=(joined,))):
            return plan
        groups = [joined if g is own[0] else g for g in plan.groups if g not in own[1:]]
        return replace(plan, groups=tuple(groups))

    def parted(
        self, plan: Plan, good: list[Group], groups: list[Group]
    ) -> tuple[list[Group], list[tuple[Group, str]]]:
        """Return the groups that can be cut along with the good ones, and why the others cannot."""
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
            run(model, self.arguments, training=True)
        except Exception as error:
            return error
        return None


def _of_one_size(plan: Plan, model: nn.Module) -> Iterator[list[Group]]:
    """Yield groups of equal size that the code may want to stay of equal size."""
    kinds = ["weight_hh", "weight_hr"]  # outputs, and cells of a projected LSTM
    for name, module in model.named_modules():
        for kind in kinds if isinstance(module, nn.RNNBase) else ():
            prefix = f"{name}.{kind}" if name else kind
            own = [g for g in plan.groups if _is_made_by(g, prefix)]
            if len(own) > 1 and len({g.size for g in own}) == 1:
                yield own


def _is_made_by(group: Group, prefix: str) -> bool:
    return any(s.role == "produce" and s.parameter.startswith(prefix) for s in group.slices)


def _joined(groups: list[Group]) -> Group:
    runs: dict[tuple[str, int, Role], list[tuple[int, int, int]]] = {}
    for group in groups:
        for s in group.slices:
            runs.setdefault((s.parameter, s.dim, s.role), []).extend(s.runs)
    slices = (Slice(*key, tuple(sorted(set(r)))) for key, r in runs.items())
    return Group("+".join(g.name for g in groups), groups[0].size, tuple(slices))


def _relies_on_size(error: BaseException) -> str:
    return f"the model's code relies on its size: {error} [{where_in_user_code(error)}]"
