"""Products of float32 with all their digits, where outputs are compared."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """Inside `with`, a GPU multiplies float32 as such: TF32 would hide how equal outputs are."""
    precision, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = cudnn
