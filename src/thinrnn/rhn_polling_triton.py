"""The loops of the highway network by kernels that wait on values."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton
from torch import Tensor

from thinrnn.rhn_blocks_triton import BLOCK, columns_of, in_blocks, rows_of
from thinrnn.rhn_persistent_triton import room
from thinrnn.rhn_polling_kernels_triton import backward, forward

if TYPE_CHECKING:
    from thinrnn.rhn_fused import Kept

PATIENCE = 1 << 18  # reads in a launch, a tenth of a second of them; 2 a step are usual
WIDEST = 1024  # beyond, what a thread reads does not fit into its registers
LOOKS = 64  # at some values, before all are read


@dataclass(frozen=True)
class Polling:
    """The loops, `at_once` small steps in one launch; 0 for all of them."""

    at_once: int = 0
    neurons: int = 16  # of one program
    rows: tuple[int, int] = (32, 16)  # sequences of one program, at most; forward, backward
    warps: int = 8  # of one program; each sums over its share of the neurons that are read
    look: int = 32  # at so many values at most before reading all; 0 to read at once

    def forward(
        self, from_x: Tensor, U: Tensor, b: Tensor, mask: Tensor | None, kept: "Kept"
    ) -> None:
        """Fill states, what was read of them and activations."""
        width = U.shape[-1]
        s = kept.states[0]
        kept.read[0, 0] = s if mask is None else s * mask
        tensors = [rows_of(U), from_x, b, s if mask is None else mask]
        tensors += [kept.states, kept.read, kept.act]
        given = self._given(kept, width, self.rows[0])
        given[0] = in_blocks(kept.read[0, 0], *sliced(len(s), self.rows[0]))
        for span in self._spans(kept):
            self._launch(forward, [given, *tensors], span, mask, kept, width)

    def backward(
        self, grad: Tensor, U: Tensor, mask: Tensor | None, kept: "Kept", grad_a: Tensor
    ) -> Tensor:
        """Fill the gradients of all pre-activations; return that of the first state."""
        width = U.shape[-1]
        carried = torch.zeros_like(kept.states[0])
        first = carried if mask is None else mask
        tensors = [columns_of(U), grad, first, kept.states, kept.act, grad_a, carried]
        given = self._given(kept, 2 * width, self.rows[1])
        for span in self._spans(kept)[::-1]:
            self._launch(backward, [given, *tensors], span, mask, kept, 2 * width)
        product = torch.mm(grad_a[0, 0], U[0])
        return carried + (product if mask is None else product * mask)

    def _given(self, kept: "Kept", reach: int, most: int) -> Tensor:
        """Return memory for what programs give to one another."""
        slices, rows = sliced(kept.read.shape[2], most)
        shape = (kept.last + 1, slices, triton.cdiv(rows, 8) * 8 * reach)
        return kept.read.new_full(shape, float("nan"))

    def _spans(self, kept: "Kept") -> list[tuple[int, int]]:
        count = kept.last + 1
        length = self.at_once or count
        return [(first, min(first + length, count)) for first in range(0, count, length)]

    def _launch(
        self,
        kernel: Any,
        tensors: list[Tensor],
        span: tuple[int, int],
        mask: Tensor | None,
        kept: "Kept",
        reach: int,
    ) -> None:
        depth, steps, batch, width = kept.read.shape
        reach = triton.next_power_of_2(reach)
        parts = min(self.warps, reach // BLOCK)
        slices, rows = sliced(batch, self.rows[kernel is backward])
        programs = width // self.neurons
        kernel[(programs, slices)](
            *tensors,
            *(steps, depth, batch, rows, *span, 1),
            WIDTH=width,
            HAS_MASK=mask is not None,
            APART=self.neurons * triton.cdiv(programs, max(1, self.look)),
            LOOKS=LOOKS if self.look else 0,
            PROGRAMS=programs,
            ROWS=max(16, triton.next_power_of_2(rows)),
            NEURONS=self.neurons,
            PARTS=parts,
            PART=reach // parts,
            PATIENCE=PATIENCE // LOOKS if self.look else PATIENCE,
            num_warps=self.warps,
            num_stages=1,  # more would fetch what other programs have not written yet
            **({"launch_cooperative_grid": True} if span[1] - span[0] > 1 else {}),
        )


def fits(from_x: Tensor) -> bool:
    """Return whether these kernels can run on values of this shape, type and device."""
    _, batch, rows = from_x.shape
    width = rows // 2
    programs = width // Polling.neurons * sliced(batch, min(Polling.rows))[0]
    return width <= WIDEST and programs <= room(from_x) and from_x.dtype.itemsize == 2


def sliced(batch: int, most: int) -> tuple[int, int]:
    """Return in how many slices of at most so many sequences a batch is cut, and what each has."""
    slices = triton.cdiv(batch, most)
    return slices, triton.cdiv(batch, slices)
