"""The random generators of Python, NumPy and torch, written down and put back."""

import random
from typing import Any

import numpy
import torch


def random_state() -> dict[str, Any]:
    """Return the state of every global random generator as tensors and JSON values."""
    name, keys, position, has_gauss, gauss = numpy.random.get_state()
    version, words, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [name, torch.tensor(numpy.asarray(keys, "int64")), position, has_gauss, gauss],
        "python": [version, torch.tensor(words, dtype=torch.int64), gauss_next],
    }


def set_random_state_(state: dict[str, Any]) -> None:
    """Put the generators back; states of CUDA devices that are not here are left out."""
    torch.set_rng_state(state["torch"])
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    name, keys, position, has_gauss, gauss = state["numpy"]
    numpy.random.set_state((name, keys.numpy().astype("uint32"), position, has_gauss, gauss))
    version, words, gauss_next = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss_next))
