"""All small steps of the recurrent highway network in one kernel that waits on the values alone.

    program (p, c):  neurons of block p, sequences of slice c; their state stays in registers
                     weights of the next step on their way ── values of the others there? ── go on

Each program multiplies what is read of all neurons by its own rows of U, then does the point-wise
part at once. There are no counters: every number that programs exchange has a place of its own,
which holds NaN until it is written. A program reads, multiplies and, where something is NaN, does
so again. That avoids fences and counters, which take longer than all arithmetic of a small step.
Sequences do not depend on one another, so they are shared out as well.

Weights and values lie in memory as matrix units need them (`blocks_triton`), so that threads need
not exchange what they have loaded. `persistent` launches the kernels.

Programs wait for one another, so all must run at once. The launch is cooperative for that, under
MPS too: a grid starts when there is room for all of it, whatever other processes run. Should a
program still wait in vain, it runs out of patience and goes on with NaN, at which a run stops
instead of blocking the GPU for ever. A NaN that was computed looks like one that was not written,
so it ends in the same way.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# (Triton's kernels are typed by what they are launched with.)

import triton
import triton.language as tl

from thinrnn.nn._rhn.blocks_triton import place, places
from thinrnn.nn._rhn.pointwise_triton import tanh

NUMBERS = ["steps", "depth", "batch", "rows", "once"]  # any value has the same code


@triton.jit
def _look(
    r,
    row,
    reach,
    WIDTH: tl.constexpr,
    BLOCKS: tl.constexpr,
    APART: tl.constexpr,
    LOOKS: tl.constexpr,
):
    """Return when there is a value of a row for every so many neurons, or after so many looks.

    Each warp looks for itself, at 32 values at a time: no other is waited for.
    """
    looks = tl.full((), LOOKS, tl.int32)
    while looks > 0:
        missing = tl.zeros((32,), tl.int32)
        for part in tl.static_range(0, WIDTH, 32 * APART):
            neuron = part + tl.arange(0, 32) * APART
            seen = tl.load(
                r + place(row, neuron, BLOCKS), mask=neuron < reach, other=0.0, volatile=True
            )
            missing |= (seen != seen).to(tl.int32)
        looks = tl.where(tl.max(missing, 0) > 0, looks - 1, 0)


@triton.jit
def _product(
    r,
    is_r,
    u,
    once,
    PARTS: tl.constexpr,
    PART: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Return what lies at r now times u, (PARTS, ROWS, COLUMNS); NaN where not all is there.

    Which neuron is which in a sum over all does not matter: the order here is such that a thread
    has loaded what it multiplies.
    """
    values = tl.zeros(is_r.shape, r.dtype.element_ty)
    for _ in range(0, once):  # a loop, since the compiler would put off some loads until others end
        values = tl.load(r, mask=is_r, other=0.0, volatile=True)
    values = tl.reshape(values, (PART // 32, ROWS // 8, PARTS, 8, 4, 2, 2, 2))
    values = tl.permute(values, 2, 1, 3, 0, 5, 6, 4, 7)
    values = tl.reshape(values, (PARTS, ROWS, PART))
    u = tl.reshape(u, (PART // 32, COLUMNS // 8, PARTS, 8, 4, 2, 2, 2))
    u = tl.permute(u, 2, 0, 5, 6, 4, 7, 1, 3)
    u = tl.reshape(u, (PARTS, PART, COLUMNS))
    return tl.dot(values, u, input_precision="ieee")


@triton.jit
def _sum_parts(products, PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the sum over all shares, (ROWS, COLUMNS).

    Left alone, Triton adds up across warps, at the end of which every warp has every value, and all
    compute the same tanh. A gather that moves nothing makes it lay the shares of one value into one
    thread, and the values out over all threads.
    """
    values = tl.permute(tl.reshape(products, (PARTS, ROWS * COLUMNS)), 1, 0)
    values = tl.expand_dims(values, 2)
    values = tl.gather(values, tl.zeros_like(values).to(tl.int32), 2)
    return tl.reshape(tl.sum(tl.sum(values, 2), 1), (ROWS, COLUMNS))


@triton.jit
def _any_nan(x, SIZE: tl.constexpr):
    return tl.max(tl.reshape((x != x).to(tl.int32), (SIZE,)), 0)


@triton.jit(do_not_specialize=NUMBERS)
def forward(
    given,  # to other programs, step by step: (T * L, slices, rows / 8, P / 32, 8, 32)
    U,  # (L, 2P, P), in blocks of rows
    from_x,
    b,
    mask,
    states,
    read,
    act,
    steps,
    depth,
    batch,
    rows,
    once,  # 1
    WIDTH: tl.constexpr,
    HAS_MASK: tl.constexpr,
    APART: tl.constexpr,
    LOOKS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    ROWS: tl.constexpr,
    NEURONS: tl.constexpr,
    PARTS: tl.constexpr,
    PART: tl.constexpr,
    PATIENCE: tl.constexpr,
):
    p, c = tl.program_id(0), tl.program_id(1)
    count = tl.minimum(rows, batch - c * rows)  # sequences of this program
    i = tl.arange(0, ROWS)
    j = p * NEURONS + tl.arange(0, NEURONS)
    real = (i < count)[:, None] & (j < WIDTH)[None, :]
    own = (c * rows + i)[:, None] * WIDTH + j[None, :]  # (ROWS, NEURONS) of (B, P)
    own_h = 2 * (c * rows + i)[:, None] * WIDTH + j[None, :]  # of (B, 2P)
    size = (batch * WIDTH).to(tl.int64)  # so that offsets of whole steps have 64 bits
    BLOCKS: tl.constexpr = WIDTH // 32
    row, block, r_at = places(BLOCKS, ROWS, PARTS, PART)
    is_r = (row < count) & (block < BLOCKS)
    _, block, u_at = places(BLOCKS, 2 * NEURONS, PARTS, PART)
    is_u = block < BLOCKS
    U += p * 2 * NEURONS * WIDTH
    given += c * ((rows + 7) // 8 * 8 * WIDTH)
    stride = (tl.num_programs(1) * ((rows + 7) // 8 * 8 * WIDTH)).to(tl.int64)
    given_at = place(i[:, None], j[None, :], BLOCKS)
    s = tl.load(states + own, mask=real, other=0.0)
    if HAS_MASK:
        m = tl.load(mask + own, mask=real, other=0.0)
    patience = tl.full((), PATIENCE, tl.int32)
    STEP: tl.constexpr = PROGRAMS * 2 * NEURONS * WIDTH
    u = tl.load(U + u_at, mask=is_u, other=0.0)
    for k in range(0, steps * depth):
        t, d = k // depth, k % depth
        x_at = from_x + t * 2 * size + own_h
        is_first = real & (own * 0 == d)
        a_h = tl.load(x_at, mask=is_first, other=0.0).to(s.dtype)
        a_t = tl.load(x_at + WIDTH, mask=is_first, other=0.0).to(s.dtype)
        later = (j * 0 < d) & (j < WIDTH)
        b_at = b + d * 2 * WIDTH + j
        a_h += tl.load(b_at, mask=later, other=0.0).to(s.dtype)[None, :]
        a_t += tl.load(b_at + WIDTH, mask=later, other=0.0).to(s.dtype)[None, :]
        n = k + 1
        next_read = read + (n % depth * steps + n // depth) * size + own
        is_next = real & (own * 0 + n < steps * depth)
        r = given + k * stride
        h = tl.full((ROWS, NEURONS), float("nan"), s.dtype)
        g, new = h, h
        missing = tl.full((), 1, tl.int32)
        while (missing > 0) & (patience > 0):
            _look(r, count - 1, WIDTH, WIDTH, BLOCKS, APART, LOOKS)
            both = _product(r + r_at, is_r, u, once, PARTS, PART, ROWS, 2 * NEURONS)
            u = tl.load(U + n % depth * STEP + u_at, mask=is_u, other=0.0)  # for the next step
            both = _sum_parts(both, PARTS, ROWS, 2 * NEURONS)
            by_h, by_t = tl.split(tl.reshape(both, (ROWS, NEURONS, 2)))
            h, g = tanh(a_h + by_h), tl.sigmoid(a_t + by_t)
            new = (h - s) * g + s
            seen = (new * m if HAS_MASK else new).to(read.dtype.element_ty)
            tl.store(r + stride + given_at, seen, mask=is_next)  # NaN if r is not all there
            missing = _any_nan(new, ROWS * NEURONS)
            patience -= 1
            if missing > 0:
                u = tl.load(U + d * STEP + u_at, mask=is_u, other=0.0)
        s = new
        # what only backward reads comes after what others wait for
        seen = (s * m if HAS_MASK else s).to(read.dtype.element_ty)
        tl.store(next_read, seen, mask=is_next, cache_modifier=".cs")
        tl.store(states + n * size + own, s, mask=real, cache_modifier=".cs")
        at = act + k * 2 * size + own_h
        tl.store(at, h.to(act.dtype.element_ty), mask=real, cache_modifier=".cs")
        tl.store(at + WIDTH, g.to(act.dtype.element_ty), mask=real, cache_modifier=".cs")


@triton.jit(do_not_specialize=NUMBERS)
def backward(
    given,  # (T * L, slices, rows / 8, 2P / 32, 8, 32)
    U,  # (L, 2P, P), in blocks of columns
    grad,
    mask,
    states,
    act,
    grad_a,
    carried,
    steps,
    depth,
    batch,
    rows,
    once,  # 1
    WIDTH: tl.constexpr,
    HAS_MASK: tl.constexpr,
    APART: tl.constexpr,
    LOOKS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    ROWS: tl.constexpr,
    NEURONS: tl.constexpr,
    PARTS: tl.constexpr,
    PART: tl.constexpr,
    PATIENCE: tl.constexpr,
):
    p, c = tl.program_id(0), tl.program_id(1)
    count = tl.minimum(rows, batch - c * rows)
    i = tl.arange(0, ROWS)
    j = p * NEURONS + tl.arange(0, NEURONS)
    real = (i < count)[:, None] & (j < WIDTH)[None, :]
    # Of values that may not be aligned a thread loads one at a time. So they are laid out over
    # threads as sums over parts are, and none has to be moved.
    unaligned = once - 1
    own = (c * rows + i)[:, None] * WIDTH + j[None, :] + unaligned
    own_h = 2 * (c * rows + i)[:, None] * WIDTH + j[None, :] + unaligned
    size = (batch * WIDTH).to(tl.int64)  # so that offsets of whole steps have 64 bits
    BLOCKS: tl.constexpr = WIDTH // 16  # gradients of h, then those of t
    row, block, r_at = places(BLOCKS, ROWS, PARTS, PART)
    is_r = (row < count) & (block < BLOCKS)
    _, block, u_at = places(BLOCKS, NEURONS, PARTS, PART)
    is_u = block < BLOCKS
    U += p * 2 * NEURONS * WIDTH
    given += c * ((rows + 7) // 8 * 16 * WIDTH)
    stride = (tl.num_programs(1) * ((rows + 7) // 8 * 16 * WIDTH)).to(tl.int64)
    given_at = place(i[:, None], j[None, :], BLOCKS) + unaligned
    to_t = WIDTH // 32 * 256
    total = tl.zeros((ROWS, NEURONS), carried.dtype.element_ty)
    if HAS_MASK:
        m = tl.load(mask + own, mask=real, other=0.0)
    patience = tl.full((), PATIENCE, tl.int32)
    STEP: tl.constexpr = PROGRAMS * 2 * NEURONS * WIDTH
    u = tl.load(U + u_at, mask=is_u, other=0.0)
    end = steps * depth
    last = act + (end - 1) * 2 * size + own_h
    next_h = tl.load(last, mask=real, other=0.0)
    next_g = tl.load(last + WIDTH, mask=real, other=0.0)
    next_before = tl.load(states + (end - 1) * size + own, mask=real, other=0.0)
    for done in range(0, end):
        k = end - 1 - done
        t, d = k // depth, k % depth
        n = k + 1
        is_next = n < end  # nothing comes after the last step
        h, g, before = next_h.to(total.dtype), next_g.to(total.dtype), next_before
        is_more = real & (own * 0 + k > 0)
        last = act + (k - 1) * 2 * size + own_h
        is_output = real & (own * 0 + d == depth - 1)
        total += tl.load(grad + t * size + own, mask=is_output, other=0.0)
        of_h = g * (1 - h * h)
        of_t = (h - before) * g * (1 - g)
        r = given + n * stride
        new = tl.full((ROWS, NEURONS), float("nan"), total.dtype)
        missing = tl.full((), 1, tl.int32)
        while (missing > 0) & (patience > 0):
            reach = tl.where(is_next, WIDTH, 0)
            _look(r + to_t, count - 1, reach, WIDTH, BLOCKS, APART, LOOKS)
            products = _product(r + r_at, is_r & is_next, u, once, PARTS, PART, ROWS, NEURONS)
            u = tl.load(U + d * STEP + u_at, mask=is_u, other=0.0)  # for the next step
            next_h = tl.load(last, mask=is_more, other=0.0)
            next_g = tl.load(last + WIDTH, mask=is_more, other=0.0)
            next_before = tl.load(states + (k - 1) * size + own, mask=is_more, other=0.0)
            by_matrix = _sum_parts(products, PARTS, ROWS, NEURONS)
            new = total + (by_matrix * m if HAS_MASK else by_matrix)
            of_a = (new * of_h).to(grad_a.dtype.element_ty)
            tl.store(r - stride + given_at, of_a, mask=real)
            of_a = (new * of_t).to(grad_a.dtype.element_ty)
            tl.store(r - stride + given_at + to_t, of_a, mask=real)
            missing = _any_nan(new, ROWS * NEURONS)
            patience -= 1
            if missing > 0:
                u = tl.load(U + n % depth * STEP + u_at, mask=is_u, other=0.0)
        at = grad_a + (d * steps + t) * 2 * size + own_h
        of_a = (new * of_h).to(grad_a.dtype.element_ty)
        tl.store(at, of_a, mask=real, cache_modifier=".cs")
        of_a = (new * of_t).to(grad_a.dtype.element_ty)
        tl.store(at + WIDTH, of_a, mask=real, cache_modifier=".cs")
        total = new * (1 - g)
    tl.store(carried + own, total, mask=real)
