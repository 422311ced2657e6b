"""The point-wise functions of `pointwise` as one kernel each.

By hand: torch.compile would compile anew for each size that pruning leaves during training.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# (Triton's kernels are typed by what they are launched with.)

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256


@triton.jit
def tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def _act(
    product,
    added,
    s,
    mask,
    act,
    new_s,
    read,
    count,
    width,
    added_stride,
    HAS_MASK: tl.constexpr,
    HAS_READ: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    b, j = i // width, i % width
    h_at, t_at = 2 * b * width + j, (2 * b + 1) * width + j
    before = tl.load(s + i, mask=inside, other=0.0)
    wide = before.dtype
    h = tl.load(product + h_at, mask=inside, other=0.0).to(wide)
    t = tl.load(product + t_at, mask=inside, other=0.0).to(wide)
    added += b * added_stride + j
    h = tanh(h + tl.load(added, mask=inside, other=0.0).to(wide))
    t = tl.sigmoid(t + tl.load(added + width, mask=inside, other=0.0).to(wide))
    after = (h - before) * t + before
    tl.store(act + h_at, h.to(act.dtype.element_ty), mask=inside)
    tl.store(act + t_at, t.to(act.dtype.element_ty), mask=inside)
    tl.store(new_s + i, after, mask=inside)
    if HAS_READ:
        if HAS_MASK:
            after *= tl.load(mask + i, mask=inside, other=0.0)
        tl.store(read + i, after.to(read.dtype.element_ty), mask=inside)


@triton.jit
def _act_backward(
    carried,
    product,
    grad,
    mask,
    act,
    s,
    grad_a,
    count,
    width,
    HAS_PRODUCT: tl.constexpr,
    HAS_GRAD: tl.constexpr,
    HAS_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    b, j = i // width, i % width
    h_at, t_at = 2 * b * width + j, (2 * b + 1) * width + j
    total = tl.load(carried + i, mask=inside, other=0.0)
    wide = total.dtype
    if HAS_PRODUCT:
        by_matrix = tl.load(product + i, mask=inside, other=0.0).to(wide)
        if HAS_MASK:
            by_matrix *= tl.load(mask + i, mask=inside, other=0.0)
        total += by_matrix
    if HAS_GRAD:
        total += tl.load(grad + i, mask=inside, other=0.0)
    h = tl.load(act + h_at, mask=inside, other=0.0).to(wide)
    t = tl.load(act + t_at, mask=inside, other=0.0).to(wide)
    before = tl.load(s + i, mask=inside, other=0.0)
    grad_h = total * t * (1 - h * h)
    grad_t = total * (h - before) * t * (1 - t)
    tl.store(grad_a + h_at, grad_h.to(grad_a.dtype.element_ty), mask=inside)
    tl.store(grad_a + t_at, grad_t.to(grad_a.dtype.element_ty), mask=inside)
    tl.store(carried + i, total * (1 - t), mask=inside)


def act(
    product: Tensor,
    added: Tensor,
    s: Tensor,
    mask: Tensor | None,
    act: Tensor,
    new_s: Tensor,
    read: Tensor | None,
) -> None:
    """Write h and t, the state after them, and what is read of it."""
    width = s.shape[-1]
    _act[(triton.cdiv(s.numel(), BLOCK),)](
        product,
        added,
        s,
        s if mask is None else mask,
        act,
        new_s,
        act if read is None else read,
        s.numel(),
        width,
        added.stride(0) if added.dim() == 2 else 0,
        HAS_MASK=mask is not None,
        HAS_READ=read is not None,
        BLOCK=BLOCK,
        num_warps=4,
    )


def act_backward(
    carried: Tensor,
    product: Tensor | None,
    grad: Tensor | None,
    mask: Tensor | None,
    act: Tensor,
    s: Tensor,
    grad_a: Tensor,
) -> None:
    """Write the gradient of the pre-activations, and what is carried on to the state before."""
    _act_backward[(triton.cdiv(s.numel(), BLOCK),)](
        carried,
        act if product is None else product,
        s if grad is None else grad,
        s if mask is None else mask,
        act,
        s,
        grad_a,
        s.numel(),
        s.shape[-1],
        HAS_PRODUCT=product is not None,
        HAS_GRAD=grad is not None,
        HAS_MASK=mask is not None,
        BLOCK=BLOCK,
        num_warps=4,
    )
