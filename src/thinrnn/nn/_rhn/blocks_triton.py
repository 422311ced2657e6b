"""Values in blocks of 8 rows and 32 neurons, the order in which matrix units read them.

A warp that loads a block has in each thread what that thread multiplies, see
`persistent_triton`. Matrices are brought into this order by one kernel each, tile by tile.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# (Triton's kernels are typed by what they are launched with.)

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 32  # neurons
SIDE = 64  # columns of a tile


@triton.jit
def places(BLOCKS: tl.constexpr, CROSS: tl.constexpr, PARTS: tl.constexpr, PART: tl.constexpr):
    """Return the row (or column) and the block of all values in the order of loading; their places.

    A warp loads its share of the neurons, a thread 8 neighbours of a row at a time.
    """
    flat = tl.arange(0, CROSS * PARTS * PART)
    rest = flat // 256 // PARTS
    eight = rest % (CROSS // 8)
    block = rest // (CROSS // 8) * PARTS + flat // 256 % PARTS
    return eight * 8 + flat // 32 % 8, block, (eight * BLOCKS + block) * 256 + flat % 256


@triton.jit
def place(row, neuron, BLOCKS: tl.constexpr):
    """Return where the value of a row and a neuron lies."""
    return (row // 8 * BLOCKS + neuron // 32) * 256 + row % 8 * 32 + neuron % 32


@triton.jit
def _rows(U, arranged, WIDTH: tl.constexpr, SIZE: tl.constexpr):
    """Write h and t of 4 neurons, 8 rows of one matrix."""
    depth, four = tl.program_id(1).to(tl.int64), tl.program_id(0)
    at = tl.arange(0, SIZE)
    neuron, half, k = at // 64 % 4, at // 32 % 2, at // 256 * 32 + at % 32
    inside = at < 8 * WIDTH
    rows = U + depth * 2 * WIDTH * WIDTH
    values = tl.load(rows + (half * WIDTH + four * 4 + neuron) * WIDTH + k, mask=inside, other=0.0)
    tl.store(arranged + (depth * (WIDTH // 4) + four) * 8 * WIDTH + at, values, mask=inside)


@triton.jit
def _columns(U, arranged, WIDTH: tl.constexpr, SIDE: tl.constexpr):
    """Write 32 rows of some columns of one matrix."""
    depth, block = tl.program_id(2).to(tl.int64), tl.program_id(1)
    k = tl.arange(0, 32)[:, None]
    column = tl.program_id(0) * SIDE + tl.arange(0, SIDE)[None, :]
    inside = (column < WIDTH) & (k < 32)
    tile = U + (depth * 2 * WIDTH + block * 32) * WIDTH
    values = tl.load(tile + k * WIDTH + column, mask=inside, other=0.0)
    at = place(column, block * 32 + k, WIDTH // 16)
    tl.store(arranged + depth * 2 * WIDTH * WIDTH + at, values, mask=inside)


def rows_of(U: Tensor) -> Tensor:
    """Return matrices (L, 2P, P) in blocks of rows, h and t of a neuron side by side."""
    depth, _, width = U.shape
    arranged = torch.empty_like(U)
    _rows[(width // 4, depth)](U, arranged, WIDTH=width, SIZE=triton.next_power_of_2(8 * width))
    return arranged


def columns_of(U: Tensor) -> Tensor:
    """Return matrices (L, 2P, P) in blocks of columns."""
    depth, rows, width = U.shape
    arranged = torch.empty_like(U)
    grid = (triton.cdiv(width, SIDE), rows // BLOCK, depth)
    _columns[grid](U, arranged, WIDTH=width, SIDE=SIDE)
    return arranged


def in_blocks(values: Tensor, slices: int, rows: int) -> Tensor:
    """Return values (B, P) slice by slice, in blocks; a slice has this many rows."""
    batch, width = values.shape
    each = F.pad(values, (0, 0, 0, slices * rows - batch)).view(slices, rows, width)
    each = F.pad(each, (0, 0, 0, -rows % 8))
    return each.view(slices, -1, 8, width // BLOCK, BLOCK).transpose(2, 3).flatten(1)
