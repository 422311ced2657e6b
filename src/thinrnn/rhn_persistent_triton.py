"""Whole small steps of the recurrent highway network in one kernel, products included.

    program p:  neurons 16 p ... 16 p + 15, their state in registers from the first step to the last
                weights of the next step on their way while it waits ── all have written? ── go on

Each program multiplies what is read of all neurons by its own rows of U, then does the point-wise
part at once. One launch can run many small steps: programs then wait for one another between two of
them, so all must be resident. The launch is cooperative for that, under MPS too: a grid starts when
there is room for all of it, whatever other processes run. Should it still wait in vain, it gives up
and returns NaN, at which a run stops, instead of holding the GPU for ever.
"""

# mypy: disable-error-code="no-untyped-def"
# (Triton's kernels are typed by what they are launched with.)

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinrnn.rhn_triton import tanh

if TYPE_CHECKING:
    from thinrnn.rhn_fused import Kept

NEURONS = 16  # of one program; the least that a matrix unit takes
WARPS = 8  # of one program; each sums over its share of the neurons that are read
PATIENCE = 1 << 23  # looks at the counter in a launch, some seconds of them; 3 a step are usual
NUMBERS = ["steps", "depth", "batch", "first", "end"]  # any value has the same code


@triton.jit
def _tell(counter):
    """Say that this program has written all that others wait for."""
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="release", scope="gpu")


@triton.jit
def _wait(counter, count, patience):
    """Wait until programs have said so `count` times; return the patience that is left."""
    said = tl.atomic_add(counter, 0, sem="acquire", scope="gpu")
    while (said < count) & (patience > 0):
        said = tl.atomic_add(counter, 0, sem="acquire", scope="gpu")
        patience -= 1
    tl.debug_barrier()
    return patience


@triton.jit
def sum_parts(products, PARTS: tl.constexpr, BATCH: tl.constexpr, NEURONS: tl.constexpr):
    """Return the sum over all shares, (BATCH, NEURONS).

    Left alone, Triton adds up across warps, at the end of which every warp has every value, and all
    compute the same tanh. A gather that moves nothing makes it lay the shares of one value into one
    thread, and the values out over all threads.
    """
    values = tl.permute(tl.reshape(products, (PARTS, BATCH * NEURONS)), 1, 0)
    values = tl.expand_dims(values, 2)
    values = tl.gather(values, tl.zeros_like(values).to(tl.int32), 2)
    return tl.reshape(tl.sum(tl.sum(values, 2), 1), (BATCH, NEURONS))


@triton.jit(do_not_specialize=NUMBERS)
def _forward(
    from_x,
    U,
    b,
    mask,
    states,
    read,
    act,
    counter,
    steps,
    depth,
    batch,
    width,
    first,
    end,
    HAS_MASK: tl.constexpr,
    BATCH: tl.constexpr,
    NEURONS: tl.constexpr,
    PARTS: tl.constexpr,
    PART: tl.constexpr,
    PATIENCE: tl.constexpr,
):
    i = tl.arange(0, BATCH)
    j = tl.program_id(0) * NEURONS + tl.arange(0, NEURONS)
    # the neurons that are read, in PARTS shares: (PARTS, PART)
    q = tl.arange(0, PARTS)[:, None] * PART + tl.arange(0, PART)[None, :]
    real = i[:, None] < batch
    own = i[:, None] * width + j[None, :]  # (BATCH, NEURONS) of (B, P)
    own_h = 2 * i[:, None] * width + j[None, :]  # of (B, 2P)
    u_at = j[None, None, :] * width + q[:, :, None]  # (PARTS, PART, NEURONS) of (2P, P)
    u_real = (q < width)[:, :, None]
    r_at = i[None, :, None] * width + q[:, None, :]  # (PARTS, BATCH, PART) of (B, P)
    r_real = (i[None, :, None] < batch) & (q < width)[:, None, :]
    size = batch * width
    s = tl.load(states + first * size + own, mask=real, other=0.0)
    if HAS_MASK:
        m = tl.load(mask + own, mask=real, other=0.0)
    patience = tl.full((), PATIENCE, tl.int32)
    for k in range(first, end):
        t, d = k // depth, k % depth
        u_h = tl.load(U + d * 2 * width * width + u_at, mask=u_real, other=0.0)
        u_t = tl.load(U + (d * 2 + 1) * width * width + u_at, mask=u_real, other=0.0)
        x_at = from_x + t * 2 * size + own_h
        is_first = real & (own * 0 == d)
        a_h = tl.load(x_at, mask=is_first, other=0.0).to(s.dtype)
        a_t = tl.load(x_at + width, mask=is_first, other=0.0).to(s.dtype)
        later = j * 0 < d
        b_at = b + d * 2 * width + j
        a_h += tl.load(b_at, mask=later, other=0.0).to(s.dtype)[None, :]
        a_t += tl.load(b_at + width, mask=later, other=0.0).to(s.dtype)[None, :]
        if k > first:
            patience = _wait(counter, (k - first) * tl.num_programs(0), patience)
        r = tl.load(
            read + (d * steps + t) * size + r_at, mask=r_real, other=0.0, cache_modifier=".cg"
        )
        by_h = tl.dot(r, u_h, input_precision="ieee")
        by_t = tl.dot(r, u_t, input_precision="ieee")
        a_h += sum_parts(by_h, PARTS, BATCH, NEURONS)
        a_t += sum_parts(by_t, PARTS, BATCH, NEURONS)
        a_h = tl.where(patience > 0, a_h, float("nan"))
        h, g = tanh(a_h), tl.sigmoid(a_t)
        s = (h - s) * g + s
        n = k + 1
        if n < steps * depth:
            seen = s * m if HAS_MASK else s
            place = read + (n % depth * steps + n // depth) * size + own
            tl.store(place, seen.to(read.dtype.element_ty), mask=real)
        if n < end:
            _tell(counter)
        # what only backward reads comes after the others have been told
        tl.store(states + n * size + own, s, mask=real)
        tl.store(act + k * 2 * size + own_h, h.to(act.dtype.element_ty), mask=real)
        tl.store(act + k * 2 * size + own_h + width, g.to(act.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=NUMBERS)
def _backward(
    grad,
    U,  # (L, P, 2P): transposed
    mask,
    states,
    act,
    grad_a,
    carried,
    counter,
    steps,
    depth,
    batch,
    width,
    first,
    end,
    HAS_MASK: tl.constexpr,
    BATCH: tl.constexpr,
    NEURONS: tl.constexpr,
    PARTS: tl.constexpr,
    PART: tl.constexpr,
    PATIENCE: tl.constexpr,
):
    i = tl.arange(0, BATCH)
    j = tl.program_id(0) * NEURONS + tl.arange(0, NEURONS)
    q = tl.arange(0, PARTS)[:, None] * PART + tl.arange(0, PART)[None, :]
    real = i[:, None] < batch
    own = i[:, None] * width + j[None, :]
    own_h = 2 * i[:, None] * width + j[None, :]
    u_at = 2 * j[None, None, :] * width + q[:, :, None]  # (PARTS, PART, NEURONS) of (P, 2P)
    r_at = 2 * i[None, :, None] * width + q[:, None, :]  # (PARTS, BATCH, PART) of (B, 2P)
    r_real = i[None, :, None] < batch
    size = batch * width
    total = tl.load(carried + own, mask=real, other=0.0)
    if HAS_MASK:
        m = tl.load(mask + own, mask=real, other=0.0)
    patience = tl.full((), PATIENCE, tl.int32)
    for done in range(0, end - first):
        k = end - 1 - done
        t, d = k // depth, k % depth
        n = k + 1
        has_next = (q < width) & (q * 0 + n < steps * depth)
        u = U + n % depth * 2 * width * width + u_at
        u_h = tl.load(u, mask=has_next[:, :, None], other=0.0)
        u_t = tl.load(u + width, mask=has_next[:, :, None], other=0.0)
        before = tl.load(states + k * size + own, mask=real, other=0.0)
        h = tl.load(act + k * 2 * size + own_h, mask=real, other=0.0).to(total.dtype)
        g = tl.load(act + k * 2 * size + own_h + width, mask=real, other=0.0).to(total.dtype)
        is_output = real & (own * 0 + d == depth - 1)
        total += tl.load(grad + t * size + own, mask=is_output, other=0.0)
        if done > 0:
            patience = _wait(counter, done * tl.num_programs(0), patience)
        r = grad_a + (n % depth * steps + n // depth) * 2 * size + r_at
        r_mask = r_real & has_next[:, None, :]
        r_h = tl.load(r, mask=r_mask, other=0.0, cache_modifier=".cg")
        r_t = tl.load(r + width, mask=r_mask, other=0.0, cache_modifier=".cg")
        products = tl.dot(r_h, u_h, input_precision="ieee")
        products += tl.dot(r_t, u_t, input_precision="ieee")
        by_matrix = sum_parts(products, PARTS, BATCH, NEURONS)
        total += by_matrix * m if HAS_MASK else by_matrix
        total = tl.where(patience > 0, total, float("nan"))
        grad_h = total * g * (1 - h * h)
        grad_t = total * (h - before) * g * (1 - g)
        place = grad_a + (d * steps + t) * 2 * size + own_h
        tl.store(place, grad_h.to(grad_a.dtype.element_ty), mask=real)
        tl.store(place + width, grad_t.to(grad_a.dtype.element_ty), mask=real)
        if k > first:
            _tell(counter)
        total *= 1 - g
    tl.store(carried + own, total, mask=real)


class Whole:
    """The loops, `at_once` small steps in one launch; 0 for all of them."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once

    def forward(
        self, from_x: Tensor, U: Tensor, b: Tensor, mask: Tensor | None, kept: "Kept"
    ) -> None:
        """Fill states, what was read of them and activations."""
        s = kept.states[0]
        kept.read[0, 0] = s if mask is None else s * mask
        given = [from_x, U, b, s if mask is None else mask, kept.states, kept.read, kept.act]
        spans = list(self._spans(kept))
        counters = _counters(len(spans), U)
        for place, span in enumerate(spans):
            self._launch(_forward, [*given, counters[place]], span, mask, kept)

    def backward(
        self, grad: Tensor, U: Tensor, mask: Tensor | None, kept: "Kept", grad_a: Tensor
    ) -> Tensor:
        """Fill the gradients of all pre-activations; return that of the first state."""
        carried = torch.zeros_like(kept.states[0])
        given = [
            *(grad, U.transpose(1, 2).contiguous(), carried if mask is None else mask),
            *(kept.states, kept.act, grad_a, carried),
        ]
        spans = list(self._spans(kept))[::-1]
        counters = _counters(len(spans), U)
        for place, span in enumerate(spans):
            self._launch(_backward, [*given, counters[place]], span, mask, kept)
        product = torch.mm(grad_a[0, 0], U[0])
        return carried + (product if mask is None else product * mask)

    def _spans(self, kept: "Kept"):
        count = kept.last + 1
        length = self.at_once or count
        return ((first, min(first + length, count)) for first in range(0, count, length))

    def _launch(
        self, kernel, tensors: list[Tensor], span: tuple[int, int], mask: Tensor | None, kept
    ) -> None:
        depth, steps, batch, width = kept.read.shape
        reach = triton.next_power_of_2(width)
        parts = min(WARPS, reach // 16)
        kernel[(width // NEURONS,)](
            *tensors,
            *(steps, depth, batch, width, *span),
            HAS_MASK=mask is not None,
            BATCH=_batch(batch),
            NEURONS=NEURONS,
            PARTS=parts,
            PART=reach // parts,
            PATIENCE=PATIENCE,
            num_warps=WARPS,
            num_stages=1,  # more would fetch what other programs have not written yet
            **({"launch_cooperative_grid": True} if span[1] - span[0] > 1 else {}),
        )


def fits(from_x: Tensor) -> bool:
    """Return whether these kernels can run on values of this shape, type and device."""
    _, batch, rows = from_x.shape
    about = triton.runtime.driver.active.utils.get_device_properties(from_x.device.index)
    reach, programs = triton.next_power_of_2(rows // 2), rows // 2 // NEURONS
    # in backward, what is read and the weights lie in the shared memory at once, h and t of each
    memory = 2 * reach * (_batch(batch) + NEURONS) * from_x.dtype.itemsize
    is_small = memory <= about["max_shared_mem"] and programs <= room(from_x)
    return is_small and from_x.dtype.itemsize == 2


def room(like: Tensor) -> int:
    """Return how many programs are sure to be resident at once on the device of a tensor.

    None where kernels cannot be launched so that they all are, or where matrix units are missing.
    """
    if torch.version.hip is not None or torch.cuda.get_device_capability(like.device) < (8, 0):
        return 0
    count: int = torch.cuda.get_device_properties(like.device).multi_processor_count
    return count


def _counters(launches: int, like: Tensor) -> Tensor:
    """Return a zero for each launch, all equally aligned: another alignment is another kernel."""
    return torch.zeros(launches, 4, dtype=torch.int32, device=like.device)


def _batch(batch: int) -> int:
    """Return the sequences that a program computes; a matrix unit takes no fewer than 16."""
    return max(16, triton.next_power_of_2(batch))
