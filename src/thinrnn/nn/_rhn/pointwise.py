"""The loops over small steps with one product and one point-wise function in each.

The point-wise functions here are torch's own; `pointwise_triton` has the same two as kernels.
"""

from types import ModuleType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from thinrnn.nn._rhn.fused import Kept


class PointwiseLoop:
    """The loops, with products by torch's library; `pointwise` has `act` and `act_backward`."""

    def __init__(self, pointwise: ModuleType) -> None:
        self.pointwise = pointwise

    def forward(
        self, from_x: Tensor, U: Tensor, b: Tensor, mask: Tensor | None, kept: "Kept"
    ) -> None:
        """Fill states, what was read of them and activations."""
        first = kept.states[0]
        kept.read[0, 0] = first if mask is None else first * mask
        product = torch.empty_like(from_x[0])  # (B, 2P)
        for k in range(kept.last + 1):
            t, d = kept.place(k)
            torch.mm(kept.read[d, t], U[d].T, out=product)
            next_t, next_d = kept.place(k + 1)
            self.pointwise.act(
                product,
                from_x[t] if d == 0 else b[d],
                kept.states[k],
                mask,
                kept.act[k],
                kept.states[k + 1],
                None if k == kept.last else kept.read[next_d, next_t],
            )

    def backward(
        self, grad: Tensor, U: Tensor, mask: Tensor | None, kept: "Kept", grad_a: Tensor
    ) -> Tensor:
        """Fill the gradients of all pre-activations; return that of the first state."""
        carried = torch.zeros_like(kept.states[0])  # gradient of s, less what comes by a matrix
        product = torch.empty_like(kept.read[0, 0])
        for k in reversed(range(kept.last + 1)):
            t, d = kept.place(k)
            self.pointwise.act_backward(
                carried,
                None if k == kept.last else product,
                grad[t] if d == kept.depth - 1 else None,
                mask,
                kept.act[k],
                kept.states[k],
                grad_a[d, t],
            )
            torch.mm(grad_a[d, t], U[d], out=product)
        return carried + (product if mask is None else product * mask)


def act(
    product: Tensor,  # (B, 2P)
    added: Tensor,  # (B, 2P) or (2P,)
    s: Tensor,  # (B, P)
    mask: Tensor | None,  # (B, P)
    act: Tensor,  # (B, 2P), written
    new_s: Tensor,  # (B, P), written
    read: Tensor | None,  # (B, P), written: what the next matrix reads of the new state
) -> None:
    """Write h and t, the state after them, and what is read of it."""
    h, t = (product.to(s.dtype) + added.to(s.dtype)).chunk(2, -1)
    h, t = torch.tanh(h), torch.sigmoid(t)
    act.copy_(torch.cat([h, t], -1))
    new_s.copy_((h - s) * t + s)
    if read is not None:
        read.copy_(new_s if mask is None else new_s * mask)


def act_backward(
    carried: Tensor,  # (B, P), read and written
    product: Tensor | None,  # (B, P): gradient of what the next matrix read
    grad: Tensor | None,  # (B, P): gradient of the output, where the state is one
    mask: Tensor | None,  # (B, P)
    act: Tensor,  # (B, 2P)
    s: Tensor,  # (B, P)
    grad_a: Tensor,  # (B, 2P), written
) -> None:
    """Write the gradient of the pre-activations, and what is carried on to the state before."""
    if product is not None:
        carried += product if mask is None else product * mask
    if grad is not None:
        carried += grad
    h, t = act.to(s.dtype).chunk(2, -1)
    grad_h = carried * t * (1 - h * h)
    grad_t = carried * (h - s) * t * (1 - t)
    grad_a.copy_(torch.cat([grad_h, grad_t], -1))
    carried *= 1 - t
