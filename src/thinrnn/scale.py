"""A weight with its columns multiplied by gates, cheap in both directions."""

from typing import Any

import torch
from torch import Tensor


class _Scale(torch.autograd.Function):
    """W * g along one dimension; the backward pass makes one temporary instead of two."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, gate: Tensor, dim: int) -> Tensor:
        ctx.save_for_backward(weight, gate)
        ctx.dim = dim
        return weight * _along(gate, weight, dim)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weight, gate = ctx.saved_tensors
        grad_weight = grad_gate = None
        if ctx.needs_input_grad[1]:
            others = [d for d in range(weight.dim()) if d != ctx.dim]
            grad_gate = (grad * weight).sum(others)
        if ctx.needs_input_grad[0]:
            grad_weight = grad * _along(gate, weight, ctx.dim)
        return grad_weight, grad_gate, None


def scale(weight: Tensor, gate: Tensor, dim: int) -> Tensor:
    """Return the weight with position i along `dim` multiplied by `gate[i]`."""
    return _Scale.apply(weight, gate.to(weight.dtype), dim % weight.dim())


def _along(gate: Tensor, weight: Tensor, dim: int) -> Tensor:
    return gate.view([-1 if d == dim else 1 for d in range(weight.dim())])
