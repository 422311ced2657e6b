"""The last word on a plan: cut random neurons for real and compare."""

import warnings
from dataclasses import replace

import torch
from torch import nn

from thinrnn.attach import attach_, attached, detach_
from thinrnn.compact import compact
from thinrnn.errors import HardCodedSizeError, ThinRNNError
from thinrnn.plan import Plan, Refusal
from thinrnn.sandbox import precision_of
from thinrnn.tree import Arguments
from thinrnn.verify import TOLERANCE, compare


def prove(plan: Plan, model: nn.Module, arguments: Arguments) -> Plan:
    """Return the plan less the groups whose removal changes the outputs or breaks the code."""
    if not plan.groups or _failure(plan, model, arguments) is None:
        return plan
    good: list[str] = []
    refused = []
    for group in plan.groups:
        failure = _failure(plan.only(*good, group.name), model, arguments)
        if failure is None:
            good.append(group.name)
        else:
            refused.append(Refusal(group, _reason(failure)))
    groups = tuple(g for g in plan.groups if g.name in good)
    return replace(plan, groups=groups, refused=(*plan.refused, *refused))


def _failure(plan: Plan, model: nn.Module, arguments: Arguments) -> Exception | None:
    """Return what goes wrong when half of the neurons are cut and the others have soft gates."""
    attach_(model, plan)
    try:
        generator = torch.Generator().manual_seed(0)
        for gate in attached(model).gates.values():
            soft = torch.rand(gate.size, generator=generator) * 4 - 2
            closed = torch.randperm(gate.size, generator=generator) < gate.size // 2
            gate.log_alpha = torch.where(closed, -9.0, soft)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compare(model, compact(model), arguments, TOLERANCE.get(precision_of(model), 3e-2))
    except ThinRNNError as error:
        return error
    finally:
        detach_(model)
    return None


def _reason(error: Exception) -> str:
    if isinstance(error, HardCodedSizeError) and error.__cause__ is not None:
        return f"the model's code relies on its size: {error}"
    return f"a trial cut changed the outputs: {error}"
