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
    def forward(
        ctx: Any, weight: Tensor, gate: Tensor, dim: int, dtype: torch.dtype, scratch: "Scratch"
    ) -> Tensor:
        ctx.save_for_backward(weight, gate)
        ctx.dim = dim
        if _is_fusable(weight, dim):
            from thinrnn._gates import scaled_weight_triton as scale_triton

            return scale_triton.forward(weight, gate, dtype)
        if weight.is_cuda or weight.numel() <= LARGE:
            return (weight * along(gate, weight, dim)).to(dtype)
        return torch.mul(weight, along(gate, weight, dim), out=scratch.take(weight))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        weight, gate = ctx.saved_tensors
        if all(ctx.needs_input_grad[:2]) and _is_fusable(weight, ctx.dim) and grad.is_contiguous():
            from thinrnn._gates import scaled_weight_triton as scale_triton

            return *scale_triton.backward(grad, weight, gate), None, None, None
        if all(ctx.needs_input_grad[:2]) and ctx.dim == 1 and weight.numel() > LARGE:
            return *_backward_by_rows(grad, weight, gate), None, None, None
        grad_weight = grad_gate = None
        if ctx.needs_input_grad[1]:
            others = [d for d in range(weight.dim()) if d != ctx.dim]
            product = grad * weight
            grad_gate = product.sum(others) if others else product  # sum([]) would sum all
        if ctx.needs_input_grad[0]:
            grad_weight = (grad * along(gate, weight, ctx.dim)).to(weight.dtype)
        return grad_weight, grad_gate, None, None, None


def _backward_by_rows(grad: Tensor, weight: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """Return both gradients of a large matrix; products of a few rows stay in the cache."""
    # fresh memory costs more than the arithmetic, so the incoming gradient is overwritten if
    # nothing else uses it
    grad_weight = grad if _can_be_overwritten(grad, weight) else torch.empty_like(weight)
    grad_gate = torch.zeros_like(gate)
    rows = max(1, LARGE // weight[0].numel())
    gates = along(gate, weight, 1)
    others = [d for d in range(weight.dim()) if d != 1]
    for d, w, out in zip(
        grad.split(rows), weight.split(rows), grad_weight.split(rows), strict=True
    ):
        grad_gate += (d * w).sum(others)
        torch.mul(d, gates, out=out)
    return grad_weight, grad_gate


def _can_be_overwritten(grad: Tensor, weight: Tensor) -> bool:
    """Whether this tensor is the only user of its memory, and has the type of the result."""
    if not hasattr(grad, "_use_count") or grad.dtype != weight.dtype:
        return False
    return _owns_its_memory(grad) and grad._use_count() == 1 and grad.is_contiguous()


def _owns_its_memory(tensor: Tensor) -> bool:
    """Whether no other tensor uses the same memory."""
    users = getattr(torch._C, "_storage_Use_Count", None)
    # two: the tensor itself, and the storage object of this call
    return users is not None and users(tensor.untyped_storage()._cdata) == 2


class Scratch:
    """Memory for one gated weight, reused as soon as no graph needs its last contents.

    Fresh pages for a large matrix cost the CPU four times what the multiplication costs.
    """

    def __init__(self) -> None:
        self.held: Tensor | None = None

    def take(self, like: Tensor) -> Tensor:
        """Return an uninitialized tensor of the same shape and type."""
        if torch.is_inference_mode_enabled():
            return torch.empty_like(like)
        held = self.held
        fits = held is not None and (held.shape, held.dtype) == (like.shape, like.dtype)
        if held is None or not fits or not _owns_its_memory(held):
            held = self.held = torch.empty_like(like, memory_format=torch.contiguous_format)
        return held.detach()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Scratch":
        return Scratch()

    def __reduce__(self) -> Any:
        return Scratch, ()


def scale(weight: Tensor, gate: Tensor, dim: int, scratch: Scratch | None = None) -> Tensor:
    """Return the weight with position i along `dim` multiplied by `gate[i]`."""
    dtype = weight.dtype
    if dtype == torch.float32 and weight.is_cuda and torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
    gate = gate.to(weight.dtype)
    if is_transformed():
        return (weight * along(gate, weight, dim % weight.dim())).to(dtype)
    apply: Any = _Scale.apply
    product: Tensor = apply(weight, gate, dim % weight.dim(), dtype, scratch or Scratch())
    return product


def is_transformed() -> bool:
    """Whether a transform of torch.func is running; it takes plain operations only."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def in_one_piece(weights: list[Tensor]) -> list[Tensor]:
    """Return the weights of an RNN in one piece of memory, in the order of cuDNN.

    Matrices come first, then biases. In any other place cuDNN copies them itself, and torch warns.
    """
    order = sorted(range(len(weights)), key=lambda i: weights[i].dim() == 1)  # stable
    memory = torch.cat([weights[i].reshape(-1) for i in order])
    pieces = memory.split([weights[i].numel() for i in order])
    placed = {i: piece.view(weights[i].shape) for i, piece in zip(order, pieces, strict=True)}
    return [placed[i] for i in range(len(weights))]


def along(gate: Tensor, weight: Tensor, dim: int) -> Tensor:
    """Return the gates in the shape that multiplies a weight along one dimension."""
    return gate.view([-1 if d == dim else 1 for d in range(weight.dim())])


def _is_fusable(weight: Tensor, dim: int) -> bool:
    """Whether the fused kernels apply: columns of a float32 matrix on a GPU with Triton."""
    plain = weight.is_cuda and weight.dim() == 2 and dim == 1 and weight.is_contiguous()
    return plain and weight.dtype == torch.float32 and _has_triton()


def _has_triton() -> bool:
    try:
        from thinrnn._gates import scaled_weight_triton as scale_triton  # noqa: F401
    except ImportError:
        return False
    return True
