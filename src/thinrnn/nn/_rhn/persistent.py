"""The loops of the highway network, each as one kernel whose programs wait on values."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from thinrnn.nn._rhn.blocks_triton import BLOCK, columns_of, in_blocks, rows_of
from thinrnn.nn._rhn.persistent_triton import backward, forward
from thinrnn.nn._rhn.tiling import power_of_2, sliced

if TYPE_CHECKING:
    from thinrnn.nn._rhn.fused import Kept

WARPS = 8  # of a program; each sums over its share of the neurons that are read
LOOK = 32  # values to poll at most, before all are read
LOOKS = 64  # polls at most
PATIENCE = 1 << 14  # reads of all values in a launch, under a second of them; 2 a step are usual


@dataclass(frozen=True)
class Polling:
    """The loops, for the sizes of one program; see `tiling`."""

    neurons: int = 16
    rows: tuple[int, int] = (16, 16)  # sequences at most; forward, backward

    def forward(
        self, from_x: Tensor, U: Tensor, b: Tensor, mask: Tensor | None, kept: "Kept"
    ) -> None:
        """Fill states, what was read of them and activations."""
        width, most = U.shape[-1], self.rows[0]
        s = kept.states[0]
        kept.read[0, 0] = s if mask is None else s * mask
        given = _given(kept, width, most)
        given[0] = in_blocks(kept.read[0, 0], *sliced(len(s), most))
        tensors = [given, rows_of(U), from_x, b, s if mask is None else mask]
        tensors += [kept.states, kept.read, kept.act]
        self._launch(forward, tensors, kept, mask, width, most)

    def backward(
        self, grad: Tensor, U: Tensor, mask: Tensor | None, kept: "Kept", grad_a: Tensor
    ) -> Tensor:
        """Fill the gradients of all pre-activations; return that of the first state."""
        width, most = U.shape[-1], self.rows[1]
        carried = torch.empty_like(kept.states[0])
        given = _given(kept, 2 * width, most)
        tensors = [given, columns_of(U), grad, carried if mask is None else mask]
        tensors += [kept.states, kept.act, grad_a, carried]
        self._launch(backward, tensors, kept, mask, 2 * width, most)
        product = torch.mm(grad_a[0, 0], U[0])
        return carried + (product if mask is None else product * mask)

    def _launch(
        self,
        kernel: Any,
        tensors: list[Tensor],
        kept: "Kept",
        mask: Tensor | None,
        reach: int,
        most: int,
    ) -> None:
        depth, steps, batch, width = kept.read.shape
        reach = power_of_2(reach)
        parts = min(WARPS, reach // BLOCK)
        slices, rows = sliced(batch, most)
        programs = width // self.neurons
        kernel[(programs, slices)](
            *tensors,
            *(steps, depth, batch, rows, 1),
            WIDTH=width,
            HAS_MASK=mask is not None,
            APART=self.neurons * -(-programs // LOOK),
            LOOKS=LOOKS,
            PROGRAMS=programs,
            ROWS=max(16, power_of_2(rows)),
            NEURONS=self.neurons,
            PARTS=parts,
            PART=reach // parts,
            PATIENCE=PATIENCE,
            num_warps=WARPS,
            num_stages=1,  # more would fetch what other programs have not written yet
            launch_cooperative_grid=True,  # all programs start, or none
        )


def _given(kept: "Kept", reach: int, most: int) -> Tensor:
    """Return memory for what programs give to one another, all NaN."""
    slices, rows = sliced(kept.read.shape[2], most)
    shape = (kept.last + 1, slices, -(-rows // 8) * 8 * reach)
    return kept.read.new_full(shape, float("nan"))
