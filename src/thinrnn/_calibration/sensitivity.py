"""How much each row of a matrix counts for the model's outputs.

An error dy_o in row o of y = W x moves the outputs. Let v be random signs, one for each number that
the model returns, and G the gradient of v . f(x) with respect to W. Signs of different numbers
cancel on average, so |G_o|^2 / E|x|^2 is the mean square of what a unit error in row o does to all
outputs together, errors that add up over time included. Weighted in this way, errors of all
matrices are in one unit, that of the outputs, and compare.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._calibration.matrices import Matrix
from thinrnn._calibration.moments import Moments
from thinrnn._model.copying import kept_attributes
from thinrnn._model.isolation import fixed_randomness
from thinrnn._model.tree import call_arguments, map_tensors, tensors_in
from thinrnn.plan import named_tensors

Rows = dict[str, Tensor]  # matrix -> weight of the square error of each of its outputs (O,)


def row_weights(
    model: nn.Module, matrices: dict[str, Matrix], moments: dict[str, Moments], calls: Sequence[Any]
) -> Rows:
    """Return the weight of each row; rows of one matrix count alike where no gradient arrives."""
    tensors = named_tensors(model)
    weights = {name: tensors[name].requires_grad_() for name in matrices}
    squares = {name: torch.zeros(len(w), dtype=torch.float64) for name, w in weights.items()}
    for call in calls:
        for name, slope in zip(weights, _slopes(model, call, list(weights.values())), strict=True):
            if slope is not None:
                squares[name] += slope.flatten(1).double().square().sum(1).cpu()
    if not any(bool(square.any()) for square in squares.values()):
        return _alike(weights, matrices, moments)
    read = {name: float(moments[name].second(centred=False).trace()) for name in weights}
    return {name: square / max(read[name], 1e-30) for name, square in squares.items()}


def _slopes(model: nn.Module, call: Any, weights: list[Tensor]) -> Sequence[Tensor | None]:
    """Return the gradients of all outputs of a call, with random signs, relative to their size."""
    args, kwargs = map_tensors(call_arguments(call), torch.clone)
    with (
        fixed_randomness(),
        kept_attributes(model),
        torch.enable_grad(),
        torch.backends.cudnn.flags(enabled=False),  # it has no backward in eval
    ):
        total = None
        for output in tensors_in(model(*args, **kwargs)):
            if output.requires_grad and output.is_floating_point():
                y = output.detach().double()
                size = y[y.isfinite()].square().mean().sqrt().clamp(min=1e-12)
                signs = torch.randint(2, output.shape, device=output.device) * 2 - 1
                part = (output * torch.where(y.isfinite(), signs, 0)).nansum() / size
                total = part if total is None else total + part
        if total is None:
            return [None] * len(weights)
        return torch.autograd.grad(total, weights, allow_unused=True)


def _alike(
    weights: dict[str, Tensor], matrices: dict[str, Matrix], moments: dict[str, Moments]
) -> Rows:
    """Return one over the mean square of what the matrices of one output compute together."""
    energy: dict[str, float] = {}
    for name, matrix in matrices.items():
        W = weights[name].detach().flatten(1).double()
        second = moments[name].second(centred=bool(matrix.bias))
        own = float(((W.T @ W) * second).sum())
        energy[matrix.output] = energy.get(matrix.output, 0.0) + own
    return {
        name: torch.full((len(w),), 1 / max(energy[matrices[name].output], 1e-30)).double()
        for name, w in weights.items()
    }
