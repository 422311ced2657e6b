"""The recurrent highway network in few large pieces, for GPUs; `rhn.highway` is the reference.

    forward    before the loop:          one product for the inputs of all steps
               for each step and depth:  one product, one point-wise function
    backward   for each step and depth:  one point-wise function, one product
               after the loop:           one product for the weights of all depths

The loop itself is one kernel (`persistent`) or, where that cannot run, a product and a point-wise
function in each small step (`pointwise`, as a kernel `pointwise_triton`).

Everything that the backward pass needs is written where its large product reads it. Widths are
padded to a multiple of 32 on the way in: matrix units are slow at others. A padded neuron has
no weights, so its state stays 0.

T steps, B sequences, n neurons, P padded, L depths; k = t * L + d counts the small steps.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from thinrnn.nn._rhn import pointwise, tiling

MULTIPLE = 32
# "polling": one kernel for all small steps, where it can run; "pointwise": products by torch's
# library, a kernel for the rest of each small step.
WANTED = "polling"


class Kernels(Protocol):
    """What runs the loops over small steps."""

    def forward(
        self, from_x: Tensor, U: Tensor, b: Tensor, mask: Tensor | None, kept: "Kept"
    ) -> None:
        """Fill what is kept for backward from its first state on."""

    def backward(
        self, grad: Tensor, U: Tensor, mask: Tensor | None, kept: "Kept", grad_a: Tensor
    ) -> Tensor:
        """Fill `grad_a` (L, T, B, 2P), of what is inside tanh and sigmoid; return that of s."""


@dataclass(frozen=True)
class Kept:
    """What forward keeps for backward; what a product reads lies depth by depth."""

    states: Tensor  # (T * L + 1, B, P): s, before and after each k
    read: Tensor  # (L, T, B, P): s * mask, as matrices read it
    act: Tensor  # (T * L, B, 2P): h and t

    @classmethod
    def empty(cls, from_x: Tensor, s: Tensor, depth: int) -> "Kept":
        """Return memory for all of it, with the first state in its place."""
        steps, batch, rows = from_x.shape
        states = s.new_empty(steps * depth + 1, *s.shape)
        states[0] = s
        read = from_x.new_empty(depth, steps, *s.shape)
        return cls(states, read, from_x.new_empty(steps * depth, batch, rows))

    @property
    def depth(self) -> int:
        return len(self.read)

    @property
    def last(self) -> int:
        """The last k."""
        return len(self.act) - 1

    def place(self, k: int) -> tuple[int, int]:
        """Return time step and depth."""
        return divmod(k, self.depth)


def highway(
    x: Tensor,  # (T, B, m)
    s: Tensor,  # (B, n)
    W: Tensor,  # (2n, m)
    U: list[Tensor],  # (2n, n) each
    b: list[Tensor],  # (2n,) each
    mask: Tensor | None = None,  # (B, n)
    kernels: str | Kernels = "",
) -> Tensor:
    """Return the states (T, B, n) after each time step.

    `kernels` are the loops over small steps, or their name: "polling" or "pointwise".
    """
    n = s.shape[-1]
    width, inputs = _multiple(n), _multiple(x.shape[-1])
    dtype = _dtype(x)
    wide = torch.float32 if dtype.itemsize < 4 else dtype
    pack: Any = _Pack.apply  # torch does not type it
    matrices = pack(dtype, width, width, *U)  # (L, 2P, P)
    biases = _padded_halves(torch.stack(b).to(wide), width)  # (L, 2P); the first is in from_x
    reads_x = pack(dtype, width, inputs, W).squeeze(0)  # (2P, M)
    from_x = F.linear(_padded(x.to(dtype), inputs), reads_x, biases[0].to(dtype))  # (T, B, 2P)
    start = _padded(s.to(wide), width)
    mask = None if mask is None else _padded(mask.to(wide), width).contiguous()
    if isinstance(kernels, str):
        kernels = choose(from_x, kernels)
    run: Any = _Highway.apply
    outputs: Tensor = run(from_x, start, matrices, biases, mask, kernels)
    return outputs[..., :n].to(s.dtype)


def choose(from_x: Tensor, wanted: str = "") -> Kernels:
    """Return the requested kernels if they can run on these values, else simpler ones."""
    if not from_x.is_cuda:
        return pointwise.PointwiseLoop(pointwise)
    try:
        from thinrnn.nn._rhn import persistent, pointwise_triton
    except ImportError:  # no Triton
        return pointwise.PointwiseLoop(pointwise)
    if (wanted or WANTED) == "polling" and from_x.dtype.itemsize == 2:
        _, batch, rows = from_x.shape
        sizes = tiling.choose(rows // 2, batch, tiling.room(from_x))
        if sizes is not None:
            return persistent.Polling(sizes[0], (sizes[1], sizes[1]))
    return pointwise.PointwiseLoop(pointwise_triton)


class _Highway(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        from_x: Tensor,
        s: Tensor,
        U: Tensor,
        b: Tensor,
        mask: Tensor | None,
        kernels: Kernels,
    ) -> Tensor:
        kept = Kept.empty(from_x, s, len(U))
        kernels.forward(from_x.contiguous(), U, b, mask, kept)
        ctx.save_for_backward(U, mask, kept.states, kept.read, kept.act)
        ctx.kernels = kernels
        return kept.states[len(U) :: len(U)].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        U, mask, *others = ctx.saved_tensors
        kept = Kept(*others)
        grad_a = kept.act.new_empty(*kept.read.shape[:3], kept.act.shape[-1])
        grad_s = ctx.kernels.backward(grad.contiguous(), U, mask, kept, grad_a)
        flat = grad_a.flatten(1, 2)  # (L, T * B, 2P)
        grad_U = torch.bmm(flat.transpose(1, 2), kept.read.flatten(1, 2)).to(U.dtype)
        grad_b = flat.sum(1, dtype=grad_s.dtype)
        grad_b[0] = 0  # the first bias is part of from_x
        return grad_a[0], grad_s, grad_U, grad_b, None, None


class _Pack(torch.autograd.Function):
    """Joins all matrices in one, padded, in the type that products are computed in."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, width: int, columns: int, *U: Tensor) -> Tensor:
        n, m = U[0].shape[0] // 2, U[0].shape[1]
        ctx.n, ctx.m, ctx.dtype = n, m, U[0].dtype
        together = torch.stack(U)
        if (n, m) == (width, columns):
            return together.to(dtype)
        packed = together.new_zeros(len(U), 2, width, columns, dtype=dtype)
        packed[:, :, :n, :m] = together.view(len(U), 2, n, m)
        return packed.view(len(U), 2 * width, columns)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        halves = grad.view(len(grad), 2, -1, grad.shape[-1])[:, :, : ctx.n, : ctx.m]
        whole = halves.to(ctx.dtype).reshape(-1, 2 * ctx.n, ctx.m)
        return None, None, None, *whole.unbind()


def _dtype(x: Tensor) -> torch.dtype:
    """Return the type that products are computed in."""
    kind = x.device.type
    if x.dtype != torch.float64 and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return x.dtype


def _multiple(size: int) -> int:
    return -(-size // MULTIPLE) * MULTIPLE


def _padded(values: Tensor, width: int) -> Tensor:
    return F.pad(values, (0, width - values.shape[-1]))


def _padded_halves(values: Tensor, width: int) -> Tensor:
    """Return values of h and t side by side, each padded."""
    *rows, both = values.shape
    if both == 2 * width:
        return values
    return _padded(values.view(*rows, 2, both // 2), width).flatten(-2)
