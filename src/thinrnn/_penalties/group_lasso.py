"""GroupLasso: intrinsic sparse structures (ISS), the baseline of the paper, on the same Plan."""

import functools
from itertools import combinations

import torch
from torch import Tensor, nn

from thinrnn._gates.attach import attach_, gates
from thinrnn._gates.estimators import Fixed
from thinrnn.errors import GateError
from thinrnn.group import Group, Slice
from thinrnn.plan import Plan, named_tensors


class GroupLasso:
    """A weight times the sum, over neurons, of the norm of all weights that the neuron owns.

    The baseline without gates. Call it in each training step and add the result to the loss, and
    call `threshold_` after each optimizer step. At the end, `close_` puts fixed gates on the model
    that are closed where all weights of a neuron are zero; `compact` works from there.

    Args:
        model: A model without gates.
        plan: The groups of neurons, from `find_groups`.
        weight: The weight of the penalty.

    Raises:
        PlanError: The plan does not fit the model.

    Example:
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> lasso = thinrnn.GroupLasso(model, thinrnn.find_groups(model, x), weight=1e-2)
        >>> optimizer = torch.optim.Adam(model.parameters())
        >>> loss = model(x)[0].square().mean() + lasso()
        >>> loss.backward()
        >>> optimizer.step()
        >>> lasso.threshold_(1e-4)
        >>> small = thinrnn.compact(lasso.close_())
    """

    def __init__(self, model: nn.Module, plan: Plan, *, weight: float) -> None:
        self.model = model
        self.plan = plan.fitted(model)
        self.weight = weight

    def __call__(self) -> Tensor:
        """Return the penalty, to be added to the loss."""
        tiny = 1e-16  # the square root has no slope at zero
        norms = [(squared_norms(self.model, g) + tiny).sqrt().sum() for g in self.plan.groups]
        return self.weight * torch.stack(norms).sum()

    @torch.no_grad()
    def threshold_(self, smallest: float = 1e-4) -> None:
        """Set to zero every weight of the groups that is smaller than `smallest`."""
        for group in self.plan.groups:
            for tensor, s in weight_slices(self.model, group):
                positions = index_on(tensor.device, s)[0]
                if len(positions) == tensor.shape[s.dim]:
                    tensor.masked_fill_(tensor.abs() < smallest, 0)
                    continue
                part = tensor.index_select(s.dim, positions)
                part.masked_fill_(part.abs() < smallest, 0)
                tensor.index_copy_(s.dim, positions, part)

    def alive(self) -> dict[str, Tensor]:
        """Return, per group, which neurons still own a weight that is not zero.

        Raises:
            GateError: Weights are NaN or infinite.
        """
        return {g.name: norms(self.model, g) > 0 for g in self.plan.groups}

    def close_(self) -> nn.Module:
        """Put fixed gates on the model, closed where a neuron's weights are all zero.

        Raises:
            GateError: Weights are NaN or infinite.
        """
        alive = self.alive()
        attach_(self.model, self.plan, gate=Fixed())
        for name, gate in gates(self.model).items():
            gate.log_alpha = alive[name].float() * 2 - 1
            gate.log_alpha.requires_grad_(False)
        return self.model


def weight_slices(model: nn.Module, group: Group) -> list[tuple[Tensor, Slice]]:
    """Return the matrices of a group with their slices, tied ones once; biases are not weights."""
    tensors = named_tensors(model)
    found = {
        (id(tensors[s.parameter]), s.dim, s.runs): (tensors[s.parameter], s) for s in group.slices
    }
    return [(t, s) for t, s in found.values() if isinstance(t, nn.Parameter) and t.dim() > 1]


@functools.lru_cache(maxsize=256)
def index_on(device: torch.device, s: Slice) -> tuple[Tensor, Tensor]:
    """Return positions and neurons of a slice on a device, moved there once.

    A CUDA graph cannot copy from the host, so a step that is captured must find them there.
    """
    positions, neurons = s.index()
    return positions.to(device), neurons.to(device)


def squared_norms(model: nn.Module, group: Group) -> Tensor:
    """Return the sum of squares of all weights that each neuron owns, differentiable."""
    pairs = weight_slices(model, group)
    total = torch.zeros(group.size, device=pairs[0][0].device, dtype=pairs[0][0].dtype)
    for tensor, s in pairs:
        positions, neurons = index_on(tensor.device, s)
        others = [d for d in range(tensor.dim()) if d != s.dim]
        along = tensor.square().sum(others)
        total = total.index_add(0, neurons, along.index_select(0, positions))
    for (tensor, a), (other, b) in combinations(pairs, 2):
        if tensor is other and a.dim != b.dim:
            total = total - _owned_twice(tensor, a, b, group.size)
    return total


@torch.no_grad()
def norms(model: nn.Module, group: Group) -> Tensor:
    """Return the norm of all weights that each neuron owns.

    Raises:
        GateError: A norm is not a number.
    """
    found = squared_norms(model, group).sqrt()
    if not found.isfinite().all():
        raise GateError(
            f"group '{group.name}' owns weights that are NaN or infinite: training has diverged. "
            "Go back to an earlier checkpoint and lower the learning rate or clip the gradients."
        )
    return found


def _owned_twice(tensor: Tensor, a: Slice, b: Slice, size: int) -> Tensor:
    """Return the squares of what a neuron owns by row and by column: the diagonal of U."""
    total = tensor.new_zeros(size)
    for p, n, length in a.runs:
        for q, m, other in b.runs:
            first, end = max(n, m), min(n + length, m + other)
            if first < end:
                block = tensor.narrow(a.dim, p + first - n, end - first)
                block = block.narrow(b.dim, q + first - m, end - first)
                shared = block.diagonal(0, a.dim, b.dim).square()  # (..., neurons)
                shared = shared.flatten(0, -2).sum(0) if shared.dim() > 1 else shared
                total = total.index_add(0, torch.arange(first, end, device=total.device), shared)
    return total
