"""Sets of neurons to change, such that few of them tell all neurons apart."""

from collections.abc import Iterator

import torch
from torch import Tensor


def halves(numbers: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield, per bit, the neurons whose number has it and those whose number has not.

    >>> [one.tolist() for one, other in halves(torch.arange(3))]
    [[False, True, False], [False, False, True]]
    """
    for bit in range(int(numbers.max()).bit_length() if len(numbers) else 0):
        has = (numbers >> bit & 1).bool()
        yield has, ~has


def divisions(size: int, most: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield ways to part neurons into 2 to `most` equal blocks: how many, places, blocks.

    Neurons at the same place are side by side in one way (a GLU halves a row), and next to each
    other in the other way.

    >>> [(k, place.tolist(), block.tolist()) for k, place, block in divisions(4, most=2)]
    [(2, [0, 1, 0, 1], [0, 0, 1, 1]), (2, [0, 0, 1, 1], [0, 1, 0, 1])]
    """
    each = torch.arange(size)
    for k in range(2, most + 1):
        if size % k == 0 and size > k:
            yield k, each % (size // k), each // (size // k)
            yield k, each // k, each % k
