"""shrink_: removing closed neurons during training."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from thinrnn._gates.attach import attached
from thinrnn._gates.attached import Attached
from thinrnn._gates.scaled_weight import along
from thinrnn._layers.computed import Computed, norm_except, norms_of, with_lengths
from thinrnn._surgery.cut import (
    Keep,
    Positions,
    cut_tensor,
    follow_tensors,
    kept_positions,
    need_root_stays,
    neurons_to_keep,
    plan_after,
    restore_rnns,
    set_attributes_,
)
from thinrnn._surgery.full_width_inputs import full_width_inputs
from thinrnn.errors import PlanError, ThinRNNError
from thinrnn.plan import named_tensors

FULLY_OPEN = 1e4  # log_alpha of a gate that is exactly 1
AVERAGES = ("ax", "average")  # under these names optimizers keep means of a parameter


def shrink_(model: nn.Module, optimizer: Optimizer | Sequence[Optimizer] | None = None) -> int:
    """Remove the neurons whose gates are closed, in place, during training.

    Parameters stay the same objects, and the optimizer's state (momentum, Adam's moments, ASGD's
    averages) is cut along with them, so training goes on as before, only faster. What has been
    removed cannot come back. An `nn.LSTM` whose layers get unequal sizes becomes an `RNNStack`,
    whose parameters have other names. Once a `Target` has settled, the gates are folded into the
    weights as well. A state carried from batch to batch has the old width: start again from None.

    Args:
        model: A model with gates, from `attach_`.
        optimizer: The optimizer, or several, whose state follows the parameters.

    Returns:
        How many neurons were removed.

    Raises:
        GateError: The model has no gates, or they are NaN.
        PlanError: The model itself is an RNN that would have to become an `RNNStack`.
        ThinRNNError: The optimizer's state does not have the shape of its parameter.

    Example:
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> plan = thinrnn.find_groups(model, x).only("input")
        >>> _ = thinrnn.attach_(model, plan)
        >>> optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-3, gate_lr=1e-1))
        >>> thinrnn.gates(model)["input"].log_alpha = torch.tensor([9.0, -9.0, 9.0])
        >>> thinrnn.shrink_(model, optimizer)
        1
        >>> model.weight_ih_l0.shape
        torch.Size([32, 2])
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
    """Return which of the original neurons are still there, after `shrink_` or `cut_`.

    A checkpoint of a model that has shrunk needs them: `cut_` gives them to a fresh model.

    Args:
        model: A model with gates, from `attach_`.

    Returns:
        A list of indices for each group.

    Raises:
        GateError: The model has no gates.

    Example:
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> _ = thinrnn.attach_(model, thinrnn.find_groups(model, x))
        >>> thinrnn.kept_neurons(model)["input"]
        [0, 1, 2]
    """
    return {name: gate.origin.tolist() for name, gate in attached(model).gates.items()}


def cut_(
    model: nn.Module,
    kept: Mapping[str, Sequence[int]],
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
) -> nn.Module:
    """Remove all but the given original neurons of a gated model, in place.

    With the `kept_neurons` of a model that has shrunk, a freshly built one with gates gets the same
    shape, so that the `state_dict` of a checkpoint fits.

    Args:
        model: A model with gates, from `attach_`.
        kept: For each group the original neurons to keep, as from `kept_neurons`. Groups that are
            not named stay as they are.
        optimizer: The optimizer, or several, whose state follows the parameters.

    Returns:
        The same model.

    Raises:
        GateError: The model has no gates.
        PlanError: A group or a neuron is not there, or no neuron of a group would be left.

    Example:
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> _ = thinrnn.attach_(model, thinrnn.find_groups(model, x).only("input"))
        >>> thinrnn.kept_neurons(thinrnn.cut_(model, {"input": [0, 2]}))
        {'input': [0, 2]}
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
    norms = _norms(model)
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
    for norm, before in norms.items():
        _keep_norm_(model, norm, before, positions)
    _, renamed = follow_tensors(model, set(positions))
    # what is left decides on the modules, not the way there: a stack may have one size again
    _, back = restore_rnns(model, gated.rnns())
    renamed = back | {old: back.get(new, new) for old, new in renamed.items()}
    set_attributes_(model, gated.plan, keep)
    gated.last.clear()
    left = {name: gate.origin.cpu() for name, gate in gated.gates.items()}
    first = gated.first_plan
    hooks = full_width_inputs(model, gated.layers, first, left, full_inputs=True)
    gated.follow(plan_after(gated.plan, positions, keep, renamed), hooks)


@torch.no_grad()
def fold_(gated: Attached, optimizers: Sequence[Optimizer]) -> None:
    """Multiply the weights by frozen gates, which are 1 afterwards."""
    values = {name: gate.value for name, gate in gated.gates.items()}
    norms = _norms(gated.model)
    parts = (part for r in gated.readers for part in (r, r.lengths) if part is not None)
    for reader in parts:
        weight = reader.weight
        for axis in reader.scaled:
            factors = along(axis.factors(values).to(weight.dtype), weight, axis.dim)
            weight *= factors
            for optimizer in optimizers:  # averages of the weight; moments follow by themselves
                for key, average in optimizer.state.get(weight, {}).items():
                    if key in AVERAGES:
                        average *= factors
    for norm, before in norms.items():
        _keep_norm_(gated.model, norm, before, {})
    for gate in gated.gates.values():
        gate.log_alpha = torch.where(gate.value > 0, FULLY_OPEN, gate.log_alpha)


def _norms(model: nn.Module) -> dict[Computed, Tensor]:
    """Return what the rows of each weight under weight norm measure."""
    tensors = named_tensors(model)
    return {norm: norm_except(tensors[norm.source], norm.dim) for norm in norms_of(model)}


def _keep_norm_(model: nn.Module, norm: Computed, before: Tensor, positions: Positions) -> None:
    """Let the lengths of rows under weight norm follow what has changed in the rows."""
    tensors = named_tensors(model)
    source, lengths = tensors[norm.source], tensors[norm.lengths]
    before = cut_tensor(before, positions.get(norm.lengths, {}))
    rows, new = with_lengths(source, lengths, before, norm.dim)
    source.copy_(rows)
    lengths.copy_(new)


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
        # a graph that is still alive (a loss that the caller holds) remembers the old shape in the
        # parameter's gradient accumulator; a change of type makes torch forget that one
        other = torch.float32 if new.dtype != torch.float32 else torch.float64
        tensor.data = torch.empty(0, dtype=other, device=new.device)
    tensor.data = new
    tensor.grad = grad


def _listed(optimizer: Optimizer | Sequence[Optimizer] | None) -> Sequence[Optimizer]:
    if optimizer is None:
        return ()
    return (optimizer,) if isinstance(optimizer, Optimizer) else optimizer
