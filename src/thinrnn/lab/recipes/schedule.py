"""Learning rates over time, and the rule that starts averaging.

By hand, not by torch.optim.lr_scheduler: a function of step and epoch alone has no state that a
checkpoint would have to hold, and the gates keep their own rate.
"""

import math


def lr_factor(
    kind: str,
    *,
    step: int,
    steps: int,
    epoch: int,
    warmup: int = 0,
    decay: float = 1.0,
    decay_from: int = 0,
    decay_every: int = 1,
) -> float:
    """Return what the learning rate is multiplied by in one step.

    "decay" cuts every `decay_every` epochs from epoch `decay_from` on, "cosine" ends near zero.
    """
    rise = min(1.0, (step + 1) / (warmup + 1))
    if kind == "cosine":
        return rise * 0.5 * (1 + math.cos(math.pi * step / max(1, steps)))
    if kind == "decay" and epoch >= decay_from:
        return rise * decay ** ((epoch - decay_from) // decay_every + 1)
    return rise


def has_stalled(earlier: list[float], current: float, window: int) -> bool:
    """The NT-ASGD rule: worse than the best of all but the last `window` earlier values."""
    return len(earlier) > window and current > min(earlier[:-window])
