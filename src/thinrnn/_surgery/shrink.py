"""shrink_: removing closed neurons while training goes on."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from thinrnn._gates.attach import Attached, attached
from thinrnn._gates.scaled_weight import along
from thinrnn._surgery.cut import (
    Keep,
    cut_tensor,
    follow_tensors,
    kept_positions,
    need_root_stays,
    neurons_to_keep,
    plan_after,
    restore_rnns,
)
from thinrnn._surgery.full_width_inputs import full_width_inputs
from thinrnn.errors import PlanError, ThinRNNError
from thinrnn.plan import named_tensors

FULLY_OPEN = 1e4  # log_alpha of a gate that is exactly 1
AVERAGES = ("ax", "average")  # under these names optimizers keep means of a parameter


def shrink_(model: nn.Module, optimizer: Optimizer | Sequence[Optimizer] | None = None) -> int:
    """Remove the closed neurons of a gated model in place; return how many went.

    Parameters keep their identity, so the optimizer goes on; its state (momentum, Adam's moments,
    ASGD's averages) is cut along with them. Training goes on as before, faster. An `nn.LSTM` whose
    layers get unequal sizes becomes an `RNNStack`, so its parameters get other names. Once a
    `Target` has made its choice, the gates are folded into the weights as well.
    """
    gated = attached(model)
    keep, _ = neurons_to_keep(gated, {n: gate.value > 0 for n, gate in gated.gates.items()})
    removed = sum(gate.size - len(keep[name]) for name, gate in gated.gates.items())
    if removed:
        keep_only_(gated, keep, _listed(optimizer))
    if gated.is_frozen and not gated.is_folded:
        fold_(gated, _listed(optimizer))
    return removed


def kept_neurons(model: nn.Module) -> dict[str, list[int]]:
    """Return, per group of a gated model, which of the original neurons are still there."""
    return {name: gate.origin.tolist() for name, gate in attached(model).gates.items()}


def cut_(
    model: nn.Module,
    kept: Mapping[str, Sequence[int]],
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
) -> nn.Module:
    """Remove all but the given original neurons of a gated model, in place.

    With `kept_neurons(model)` of a model that had shrunk, a freshly built and attached one gets the
    same structure, and a checkpoint's `state_dict` fits it.
    """
    gated = attached(model)
    keep = {}
    for name, gate in gated.gates.items():
        wanted = torch.tensor(sorted(set(kept.get(name, gate.origin.tolist()))), dtype=torch.long)
        here = torch.isin(gate.origin.cpu(), wanted).nonzero().flatten()
        if len(here) != len(wanted) or not len(here):
            raise PlanError(
                f"group '{name}' has {gate.size} neurons here, and not all of those to keep: the "
                "list of kept neurons belongs to another plan."
            )
        keep[name] = here
    unknown = sorted(set(kept) - set(keep))
    if unknown:
        raise PlanError(f"no group '{unknown[0]}' in this plan; the list belongs to another one.")
    keep_only_(gated, keep, _listed(optimizer))
    return model


@torch.no_grad()
def keep_only_(gated: Attached, keep: Keep, optimizers: Sequence[Optimizer]) -> None:
    """Cut a gated model down to the given present neurons, in place."""
    model = gated.model
    positions = kept_positions(model, gated.plan, keep)
    need_root_stays(model, positions)
    tensors = named_tensors(model)
    cuts = {id(tensors[name]): (tensors[name], where) for name, where in positions.items()}
    for name, gate in gated.gates.items():
        if len(keep[name]) < gate.size:
            cuts[id(gate.log_alpha)] = (gate.log_alpha, {0: keep[name]})
            cuts[id(gate.origin)] = (gate.origin, {0: keep[name]})
    for optimizer in optimizers:
        _check_states(optimizer, cuts.keys())
    for tensor, where in cuts.values():
        for optimizer in optimizers:
            _cut_states(optimizer.state.get(tensor, {}), where)
        _replace_data(tensor, where)
    _, renamed = follow_tensors(model, set(positions))
    # what is left decides on the modules, not the way there: a stack may have one size again
    _, back = restore_rnns(model, gated.rnns())
    renamed = back | {old: back.get(new, new) for old, new in renamed.items()}
    gated.last.clear()
    left = {name: gate.origin.cpu() for name, gate in gated.gates.items()}
    hooks = full_width_inputs(gated.layers, gated.first_plan, left, full_inputs=True)
    gated.follow(plan_after(gated.plan, positions, keep, renamed), hooks)


@torch.no_grad()
def fold_(gated: Attached, optimizers: Sequence[Optimizer]) -> None:
    """Multiply the weights by frozen gates, which are 1 afterwards."""
    values = {name: gate.value for name, gate in gated.gates.items()}
    for reader in gated.readers:
        weight = reader.weight
        factors = along(reader.factors(values).to(weight.dtype), weight, reader.dim)
        weight *= factors
        for optimizer in optimizers:  # averages of the weight; moments follow by themselves
            for key, average in optimizer.state.get(weight, {}).items():
                if key in AVERAGES:
                    average *= factors
    for gate in gated.gates.values():
        gate.log_alpha = torch.where(gate.value > 0, FULLY_OPEN, gate.log_alpha)


def _check_states(optimizer: Optimizer, cut: Collection[int]) -> None:
    """Raise before anything is changed if a state cannot follow its parameter."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if not any(id(p) in cut for p in parameters):
        return
    for parameter in parameters:
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor) and value.numel() > 1 and value.shape != parameter.shape:
                raise ThinRNNError(
                    f"{type(optimizer).__name__} keeps '{key}' of shape {tuple(value.shape)} for a "
                    f"parameter of shape {tuple(parameter.shape)}, which shrink_ cannot cut. Use "
                    "an optimizer whose state has the parameter's shape, or call shrink_(model) "
                    "alone and make a new optimizer."
                )


def _cut_states(state: dict[str, Any], where: dict[int, Tensor]) -> None:
    for key, value in state.items():
        if isinstance(value, Tensor) and value.numel() > 1:
            state[key] = cut_tensor(value, where)


def _replace_data(tensor: Tensor, where: dict[int, Tensor]) -> None:
    grad = None if tensor.grad is None else cut_tensor(tensor.grad, where)
    new = cut_tensor(tensor.detach(), where)
    tensor.grad = None
    if isinstance(tensor, nn.Parameter):
        # a graph that is still alive (a loss somebody holds) remembers the old shape in the
        # parameter's gradient accumulator; a change of type makes torch forget that one
        other = torch.float32 if new.dtype != torch.float32 else torch.float64
        tensor.data = torch.empty(0, dtype=other, device=new.device)
    tensor.data = new
    tensor.grad = grad


def _listed(optimizer: Optimizer | Sequence[Optimizer] | None) -> Sequence[Optimizer]:
    if optimizer is None:
        return ()
    return (optimizer,) if isinstance(optimizer, Optimizer) else optimizer
