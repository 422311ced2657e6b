"""Whether a small model is faster than the model it was made from, here and in PyTorch."""

import time
import warnings
from typing import Any

import torch
from torch import nn

from thinrnn._gates.attach import attached
from thinrnn._model.copying import copy_module
from thinrnn._model.tree import Arguments
from thinrnn.timing import Clock, torch_threads

ROUNDS = 7


def warn_unless_faster(gated: nn.Module, small: nn.Module, arguments: Arguments) -> None:
    """Warn if a call of the small model takes as long as one of the gated model without its gates.

    Both are called on the example in eval mode, on one thread, in turn; the quickest calls are
    compared, by CPU time, so that other programs count little.
    """
    args, kwargs = arguments
    models = {"dense": attached(gated).copy_without({}).eval(), "small": copy_module(small).eval()}

    def call(model: nn.Module) -> Any:
        return lambda: model(*args, **kwargs)

    with torch_threads(1), torch.inference_mode():
        clock = Clock({name: call(model) for name, model in models.items()}, now=time.thread_time)
        rounds = [clock.round() for _ in range(ROUNDS)]
    dense, few = (min(one[name] for one in rounds) for name in models)
    if few >= dense:
        warnings.warn(
            f"the small model is not faster here: {few:.3g} ms for a call on the example, and "
            f"{dense:.3g} ms with all neurons, in PyTorch on one thread. PyTorch's own work for a "
            "call takes longer than the arithmetic: export the model (export_onnx, export_c), call "
            "it with more steps or a larger batch, or end with equal layers: "
            "Target(..., equal=True).",
            stacklevel=3,  # the caller of verify()
        )
