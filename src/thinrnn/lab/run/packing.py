"""Nested states taken apart into tensors and JSON, and put together again.

    {"lr": 0.1, "h": (a, b)}
        -> {"dict": {"lr": 0.1, "h": {"tuple": [{"tensor": "h.0"}, {"tensor": "h.1"}]}}}
        +  {"h.0": a, "h.1": b}

A dictionary is marked like the others, so that no key of it can be mistaken for a mark.
"""

from typing import Any

import torch
from torch import Tensor


def pack(state: Any) -> tuple[Any, dict[str, Tensor]]:
    """Return the JSON part and the tensors of a state; a tensor that occurs twice is kept once."""
    tensors: dict[str, Tensor] = {}
    seen: dict[tuple[Any, ...], str] = {}

    def walk(value: Any, name: str) -> Any:
        if isinstance(value, Tensor):
            same = (value.data_ptr(), value.shape, value.stride(), value.dtype)
            key = seen.setdefault(same, name) if value.numel() else name
            if key == name:
                tensors[key] = value.detach().cpu().contiguous()
            return {"tensor": key}
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise TypeError(f"'{name}' has keys that are not texts")
            return {"dict": {key: walk(item, f"{name}.{key}") for key, item in value.items()}}
        if isinstance(value, tuple):
            return {"tuple": [walk(item, f"{name}.{i}") for i, item in enumerate(value)]}
        if isinstance(value, list):
            return [walk(item, f"{name}.{i}") for i, item in enumerate(value)]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError(f"'{name}' is a {type(value).__name__}, which a checkpoint cannot hold")

    return walk(state, "state"), tensors


def unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the state that `pack` took apart."""
    if isinstance(value, list):
        return [unpack(item, tensors) for item in value]
    if isinstance(value, dict):
        (mark, inner), *_ = value.items()
        if mark == "tensor":
            return tensors[inner]
        if mark == "tuple":
            return tuple(unpack(item, tensors) for item in inner)
        return {key: unpack(item, tensors) for key, item in inner.items()}
    return value


def all_finite(tensors: list[Tensor]) -> bool:
    """True when no floating-point tensor holds NaN or infinity; waits for the device once."""
    sums = [t.detach().float().sum() for t in tensors if t.is_floating_point()]
    return not sums or bool(torch.isfinite(torch.stack(sums)).all())
