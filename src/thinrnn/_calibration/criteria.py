"""Which neurons matter: one error per neuron, small for those to remove first."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from thinrnn._calibration.elimination import Reading, eliminate
from thinrnn._calibration.matrices import Matrix
from thinrnn._calibration.moments import Moments
from thinrnn._calibration.sensitivity import Rows
from thinrnn._model.tree import call_arguments
from thinrnn._penalties.group_lasso import squared_norms
from thinrnn.plan import Plan, named_tensors

Score = Literal["reconstruct", "activation", "magnitude", "taylor"]
Loss = Callable[[Any, Any], Tensor]  # (output, example call) -> scalar
Errors = dict[str, Tensor]  # group -> what removing each neuron costs, in units that compare
DAMPING = 1e-3  # of the mean diagonal of a second moment


def magnitude(model: nn.Module, plan: Plan) -> Errors:
    """Return the norm of all weights of each neuron, relative to its group."""
    norms = {g.name: squared_norms(model, g).detach().sqrt().double().cpu() for g in plan.groups}
    return {name: norm / norm.mean().clamp(min=1e-30) for name, norm in norms.items()}


def activation(
    model: nn.Module,
    plan: Plan,
    matrices: dict[str, Matrix],
    moments: dict[str, Moments],
    rows: Rows,
) -> Errors:
    """Return E[x_j^2] |W_j|^2 of each neuron, summed over its readers."""
    errors = {g.name: torch.zeros(g.size, dtype=torch.float64) for g in plan.groups}
    for matrix, weight, second in _read(model, matrices, moments, rows):
        own = second.diagonal() * weight.square().sum(0)  # (P,)
        for group, columns in matrix.columns.items():
            part = torch.where(columns < 0, 0.0, own[columns.clamp(min=0)].cpu())
            errors[group] += part.sum(1)
    return errors


def reconstruct(
    model: nn.Module,
    plan: Plan,
    matrices: dict[str, Matrix],
    moments: dict[str, Moments],
    rows: Rows,
) -> Errors:
    """Return the error that remains after refitting when neurons go in the best order."""
    readings: dict[str, list[Reading]] = {g.name: [] for g in plan.groups}
    for matrix, weight, second in _read(model, matrices, moments, rows):
        for group, columns in matrix.columns.items():
            readings[group].append(
                Reading.of(
                    second.cpu(),
                    weight.cpu(),
                    columns,
                    damping=DAMPING,
                    free=matrix.is_free,
                )
            )
    errors = {}
    for one in plan.groups:
        order, added = eliminate(readings[one.name], one.size)
        errors[one.name] = torch.empty_like(added).index_copy(0, order, added)
    return errors


def taylor(
    model: nn.Module, plan: Plan, calls: Sequence[Any], loss: Loss, matrices: dict[str, Matrix]
) -> Errors:
    """Return E[(dL/dz_j)^2] of each neuron's gate z_j at 1, over the calls."""
    errors = {g.name: torch.zeros(g.size, dtype=torch.float64) for g in plan.groups}
    tensors = named_tensors(model)
    for call in calls:
        args, kwargs = call_arguments(call)
        model.zero_grad()
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            torch.autograd.backward(loss(model(*args, **kwargs), call))
        slopes = {name: torch.zeros_like(error) for name, error in errors.items()}
        for matrix in matrices.values():
            weight = tensors[matrix.name]
            if weight.grad is None:
                continue
            own = (weight.detach() * weight.grad).flatten(1).sum(0).double().cpu()  # (P,)
            for group, columns in matrix.columns.items():
                part = torch.where(columns < 0, 0.0, own[columns.clamp(min=0)])
                slopes[group] += part.sum(1)
        for name, slope in slopes.items():
            errors[name] += slope.square() / len(calls)
    model.zero_grad()
    return errors


def _read(
    model: nn.Module, matrices: dict[str, Matrix], moments: dict[str, Moments], rows: Rows
) -> Iterator[tuple[Matrix, Tensor, Tensor]]:
    """Yield each matrix with its weight (O, P), rows scaled by what they count, and E[x x']."""
    tensors = named_tensors(model)
    for matrix in matrices.values():
        W = tensors[matrix.name].detach().flatten(1).double()
        second = moments[matrix.name].second(centred=bool(matrix.bias))
        yield matrix, rows[matrix.name].to(W.device).sqrt()[:, None] * W, second
