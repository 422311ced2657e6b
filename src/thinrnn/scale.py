"""A weight with its columns multiplied by gates, cheap in both directions."""

from typing import Any

import torch
from torch import Tensor

LARGE = 2**18  # elements; twice that in float32 fits the cache of a core


class _Scale(torch.autograd.Function):
    """W * g along one dimension, rounded once to the type that the layer computes in.

    Under autocast the product is written in bfloat16 straight away, which costs what the cast of
    the bare weight would have cost; its gradient is widened and multiplied in one pass too.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, gate: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(weight, gate)
        ctx.dim = dim
        if _is_fusable(weight, dim):
            from thinrnn import scale_triton

            return scale_triton.forward(weight, gate, dtype)
        return (weight * _along(gate, weight, dim)).to(dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        weight, gate = ctx.saved_tensors
        if all(ctx.needs_input_grad[:2]) and _is_fusable(weight, ctx.dim) and grad.is_contiguous():
            from thinrnn import scale_triton

            return *scale_triton.backward(grad, weight, gate), None, None
        if all(ctx.needs_input_grad[:2]) and ctx.dim == 1 and weight.numel() > LARGE:
            return *_backward_by_rows(grad, weight, gate), None, None
        grad_weight = grad_gate = None
        if ctx.needs_input_grad[1]:
            others = [d for d in range(weight.dim()) if d != ctx.dim]
            product = grad * weight
            grad_gate = product.sum(others) if others else product  # sum([]) would sum all
        if ctx.needs_input_grad[0]:
            grad_weight = (grad * _along(gate, weight, ctx.dim)).to(weight.dtype)
        return grad_weight, grad_gate, None, None


def _backward_by_rows(grad: Tensor, weight: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """Return both gradients of a large matrix; products of a few rows stay in the cache."""
    # fresh memory costs more than the arithmetic, so the incoming gradient is overwritten if it is
    # nobody else's
    grad_weight = grad if _is_nobody_elses(grad, weight) else torch.empty_like(weight)
    grad_gate = torch.zeros_like(gate)
    rows = max(1, LARGE // weight[0].numel())
    gates = _along(gate, weight, 1)
    others = [d for d in range(weight.dim()) if d != 1]
    for d, w, out in zip(
        grad.split(rows), weight.split(rows), grad_weight.split(rows), strict=True
    ):
        grad_gate += (d * w).sum(others)
        torch.mul(d, gates, out=out)
    return grad_weight, grad_gate


def _is_nobody_elses(grad: Tensor, weight: Tensor) -> bool:
    """Whether this tensor is the only user of its memory, and could stand for the result."""
    users = getattr(torch._C, "_storage_Use_Count", None)
    if users is None or not hasattr(grad, "_use_count") or grad.dtype != weight.dtype:
        return False
    alone = users(grad.untyped_storage()._cdata) == 2  # itself, and the object asked for just now
    return alone and grad._use_count() == 1 and grad.is_contiguous()


def scale(weight: Tensor, gate: Tensor, dim: int) -> Tensor:
    """Return the weight with position i along `dim` multiplied by `gate[i]`."""
    dtype = weight.dtype
    if dtype == torch.float32 and weight.is_cuda and torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
    return _Scale.apply(weight, gate.to(weight.dtype), dim % weight.dim(), dtype)


def _along(gate: Tensor, weight: Tensor, dim: int) -> Tensor:
    return gate.view([-1 if d == dim else 1 for d in range(weight.dim())])


def _is_fusable(weight: Tensor, dim: int) -> bool:
    """Whether the fused kernels apply: columns of a float32 matrix on a GPU with Triton."""
    plain = weight.is_cuda and weight.dim() == 2 and dim == 1 and weight.is_contiguous()
    return plain and weight.dtype == torch.float32 and _has_triton()


def _has_triton() -> bool:
    try:
        from thinrnn import scale_triton  # noqa: F401
    except ImportError:
        return False
    return True
