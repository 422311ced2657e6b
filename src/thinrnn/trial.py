"""The last word on a plan: cut random neurons for real and compare."""

import warnings
from dataclasses import replace

import torch
from torch import nn

from thinrnn.attach import attach_, attached, detach_
from thinrnn.compact import compact
from thinrnn.errors import HardCodedSizeError, ThinRNNError
from thinrnn.plan import Group, Plan, Refusal, Role, Slice
from thinrnn.sandbox import precision_of, where_in_user_code
from thinrnn.tree import Arguments
from thinrnn.verify import TOLERANCE, compare


def prove(plan: Plan, model: nn.Module, arguments: Arguments) -> Plan:
    """Return the plan less the groups whose removal changes the outputs or breaks the code.

    Where only unequal sizes of one RNN's layers and directions break the code (it stacks or
    reshapes their states), they share their gates instead and keep one size.
    """
    if not plan.groups or _failure(plan, model, arguments) is None:
        return plan
    for name, module in model.named_modules():
        if isinstance(module, nn.RNNBase):
            plan = _with_one_size(plan, name, model, arguments)
    good: list[Group] = []
    refused = list(plan.refused)
    for group in plan.groups:
        failure = _failure(replace(plan, groups=(*good, group)), model, arguments)
        if failure is None:
            good.append(group)
        else:
            refused.append(Refusal(group, _reason(failure)))
    return replace(plan, groups=tuple(good), refused=tuple(refused))


def _with_one_size(plan: Plan, rnn: str, model: nn.Module, arguments: Arguments) -> Plan:
    """Return the plan with the groups of an RNN joined, if that mends the code and nothing else."""
    for matrix in ("weight_hh", "weight_hr"):  # outputs and cells of a projected LSTM
        own = [g for g in plan.groups if _is_made_by(g, f"{rnn}.{matrix}" if rnn else matrix)]
        if len(own) < 2 or len({g.size for g in own}) > 1:
            continue
        joined = _joined(own)
        apart = _failure(replace(plan, groups=tuple(own)), model, arguments)
        together = _failure(replace(plan, groups=(joined,)), model, arguments)
        if apart is not None and together is None:
            groups = [joined if g is own[0] else g for g in plan.groups if g not in own[1:]]
            plan = replace(plan, groups=tuple(groups))
    return plan


def _is_made_by(group: Group, prefix: str) -> bool:
    return any(s.role == "produce" and s.parameter.startswith(prefix) for s in group.slices)


def _joined(groups: list[Group]) -> Group:
    runs: dict[tuple[str, int, Role], list[tuple[int, int, int]]] = {}
    for group in groups:
        for s in group.slices:
            runs.setdefault((s.parameter, s.dim, s.role), []).extend(s.runs)
    slices = (Slice(*key, tuple(sorted(set(r)))) for key, r in runs.items())
    return Group("+".join(g.name for g in groups), groups[0].size, tuple(slices))


def _failure(plan: Plan, model: nn.Module, arguments: Arguments) -> Exception | None:
    """Return what goes wrong when some neurons are cut and the others have soft gates."""
    attach_(model, plan)
    try:
        generator = torch.Generator().manual_seed(0)
        for i, gate in enumerate(attached(model).gates.values()):
            soft = torch.rand(gate.size, generator=generator) * 4 - 2
            closed = max(gate.size // 2 - i % (gate.size // 3 + 1), min(1, gate.size - 1))
            first = torch.randperm(gate.size, generator=generator) < closed
            gate.log_alpha = torch.where(first, -9.0, soft)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tolerance = TOLERANCE.get(precision_of(model), 3e-2)
            compare(model, compact(model), arguments, tolerance)
    except ThinRNNError as error:
        return error
    finally:
        detach_(model)
    return None


def _reason(error: Exception) -> str:
    if isinstance(error, HardCodedSizeError) and error.__cause__ is not None:
        cause = error.__cause__
        return f"the model's code relies on its size: {cause} [{where_in_user_code(cause)}]"
    return f"a trial cut changed the outputs: {error}"
