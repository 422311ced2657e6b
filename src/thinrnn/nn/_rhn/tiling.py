"""How the kernels of the highway network share out neurons and sequences over their programs.

                 neurons 0 ... 15   16 ... 31   ...
    sequences 0 ... 9    program     program    ...      a slice
            10 ... 19    program     program    ...      a slice

All programs run at once, since each waits for what the others compute.
"""

from itertools import product

import torch
from torch import Tensor

NEURONS = (8, 16, 32)  # of one program
ROWS = (16, 32, 64)  # sequences of one program, at most
MOST = 48 * 1024  # (neurons + sequences) * width; beyond, threads run out of registers


def choose(width: int, batch: int, room: int) -> tuple[int, int] | None:
    """Return neurons and sequences of a program, none if no sizes fit.

    As many programs as there is room for; of sizes with equally many those with the fewest
    sequences: what is read of them has to be waited for, weights are there before.

    >>> choose(832, batch=20, room=132), choose(416, batch=20, room=132)
    ((16, 16), (8, 16))
    """

    def programs(sizes: tuple[int, int]) -> int:
        return width // sizes[0] * sliced(batch, sizes[1])[0]

    fitting = [
        sizes
        for sizes in product(NEURONS, ROWS)
        if programs(sizes) <= room and sum(sizes) * power_of_2(width) <= MOST
    ]
    return max(fitting, key=lambda sizes: (programs(sizes), -sizes[1]), default=None)


def sliced(batch: int, rows: int) -> tuple[int, int]:
    """Return the number of slices that a batch is cut into, and the sequences of each.

    >>> sliced(20, 16), sliced(64, 16)
    ((2, 10), (4, 16))
    """
    slices = -(-batch // rows)
    return slices, -(-batch // slices)


def power_of_2(size: int) -> int:
    """Return the next one that is not smaller.

    >>> power_of_2(416), power_of_2(512)
    (512, 512)
    """
    return 1 << (size - 1).bit_length()


def room(like: Tensor) -> int:
    """Return how many programs are sure to run at once on the device of a tensor.

    None where kernels cannot be launched so that they all do, or where matrix units are missing.
    """
    if torch.version.hip is not None or torch.cuda.get_device_capability(like.device) < (8, 0):
        return 0
    count: int = torch.cuda.get_device_properties(like.device).multi_processor_count
    return count
