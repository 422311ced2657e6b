"""Gates stay where they are in an optimizer step whose gradients are not numbers.

One such gradient would make a gate NaN, or, in Adam's averages, move it for many steps. Without a
gradient an optimizer leaves a parameter and its state alone.
"""

import functools
import warnings
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

_WARNED: WeakSet[Optimizer] = WeakSet()


def guard_(log_alpha: Tensor) -> None:
    """Keep the gates from steps whose gradients are not numbers, in every optimizer of torch."""
    _listen()
    log_alpha._is_gate = True  # type: ignore[attr-defined]


@functools.cache
def _listen() -> None:
    register_optimizer_step_pre_hook(_hold_gates)


def _hold_gates(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    learning = [p for group in optimizer.param_groups for p in group["params"]]
    gates = [p for p in learning if getattr(p, "_is_gate", False) and p.grad is not None]
    if not gates or _is_checked_elsewhere(optimizer, gates[0]):
        return
    if torch.stack([gate.grad.isfinite().all() for gate in gates]).all():
        return
    for gate in gates:
        gate.grad = None
    if optimizer not in _WARNED:
        _WARNED.add(optimizer)
        warnings.warn(
            "the gradients of the gates are NaN or infinite: gates stay where they are in such "
            "steps, but the optimizer may still move the weights. Skip steps whose loss is not "
            "finite, and look for the cause with torch.autograd.set_detect_anomaly(True). This "
            "warning comes once.",
            stacklevel=3,  # the caller of step()
        )


def _is_checked_elsewhere(optimizer: Optimizer, gate: Tensor) -> bool:
    """Whether a GradScaler lets the optimizer check, or a CUDA graph is recorded."""
    is_scaled = getattr(optimizer, "found_inf", None) is not None
    return is_scaled or (gate.is_cuda and torch.cuda.is_current_stream_capturing())
