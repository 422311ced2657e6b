"""Recurrent highway networks for tests that compare two ways of computing them."""

from collections.abc import Callable

import torch
from torch import Tensor


def case(
    steps: int,
    batch: int,
    inputs: int,
    width: int,
    depth: int,
    dropped: bool,
    dtype: torch.dtype,
    seed: int = 0,
) -> tuple[list[Tensor], Tensor | None]:
    """Leaves in a row (x, s, W, U..., b...), and a mask or None."""
    generator = torch.Generator().manual_seed(1000 * seed + width)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype) / max(1, shape[-1]) ** 0.5

    shapes = [(steps, batch, inputs), (batch, width), (2 * width, inputs)]
    shapes += [(2 * width, width)] * depth + [(2 * width,)] * depth
    mask = torch.rand(batch, width, generator=generator) < 0.7
    leaves = [normal(*shape).requires_grad_() for shape in shapes]
    return leaves, mask.to(dtype) / 0.7 if dropped else None


def outputs_and_gradients(
    function: Callable[..., Tensor], leaves: list[Tensor], mask: Tensor | None
) -> list[Tensor]:
    """The output, and the gradients of all leaves for some direction."""
    x, s, W, *rest = leaves
    depth = len(rest) // 2
    output = function(x, s, W, rest[:depth], rest[depth:], mask)
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(0))
    loss = (output * direction.to(output)).sum()
    return [output.detach(), *torch.autograd.grad(loss, leaves)]
