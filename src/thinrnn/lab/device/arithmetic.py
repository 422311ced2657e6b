"""The precision in which a model computes, and in which outputs are compared."""

import contextlib
from collections.abc import Iterator

import torch


def arithmetic(precision: str, device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Return the context in which the model computes: bf16 if chosen, or where it is fast."""
    bf16 = precision == "bf16" or (
        precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
    )
    if not bf16:
        return contextlib.nullcontext()
    # Without the cache: casts that a graph captured would be replayed from freed memory.
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)


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
