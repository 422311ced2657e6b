"""The numbers in which a model computes."""

import contextlib

import torch


def arithmetic(precision: str, device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Return the context in which the model computes: bf16 where asked for, or where it is fast."""
    bf16 = precision == "bf16" or (
        precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
    )
    if not bf16:
        return contextlib.nullcontext()
    # Without the cache: casts that a graph captured would be replayed from freed memory.
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)
