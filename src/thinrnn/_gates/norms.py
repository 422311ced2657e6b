"""Norms of a gated model: their mean and variance are those of open neurons alone.

The small model has the same norm over fewer neurons. In training, a neuron whose gate is drawn
open counts fully, and one whose gate is 0 not at all; gradients are those of a mean that is
weighted by the gates.
"""

from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._gates.gate import Gate
from thinrnn._gates.readers import Axis
from thinrnn._layers.base import argument
from thinrnn._layers.norms import channels_of, norm_over_open
from thinrnn.plan import Plan

OPEN = "_thinrnn_open"  # in a norm's `__dict__` during a call: 1 for each channel that counts


class GatedNorm:
    """One norm, and the gate of each of its channels."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.axis = Axis(0, "produce", channels_of(module))

    def hang(self, values: dict[str, Tensor], gates: dict[str, Gate]) -> None:
        """Note which channels count in the calls that follow."""
        groups = self.axis.groups
        counted = {g: counts(values[g], gates[g].wide_log_alpha.detach()) for g in groups}
        self.module.__dict__[OPEN] = self.axis.factors(counted)

    def take_off(self) -> None:
        """Let all channels count again."""
        self.module.__dict__.pop(OPEN, None)


def find_norms(model: nn.Module, plan: Plan) -> list[GatedNorm]:
    """Return the norms that a plan goes through."""
    found: dict[str, GatedNorm] = {}
    for group in plan.groups:
        for norm in group.norms:
            gated = found.setdefault(norm.module, GatedNorm(model.get_submodule(norm.module)))
            gated.axis.add(norm, group.name, plan)
    return list(found.values())


def counts(value: Tensor, log_alpha: Tensor) -> Tensor:
    """Return 1 for each neuron that counts in a norm, with the gradient of its gate.

    Where all gates of a group are 0, the best neuron counts, since the small model has it.
    """
    is_open = (value > 0).to(value.dtype)
    best = torch.zeros_like(is_open).scatter(0, log_alpha.argmax().view(1), 1.0)
    is_open = torch.maximum(is_open, best * (1 - is_open.amax()))
    return value + (is_open - value).detach()


def over_open_(module: nn.Module, args: Any, kwargs: Any, result: Any) -> Any:
    """Compute a norm's result again, over the channels that count; a forward hook."""
    is_open = module.__dict__.get(OPEN)
    if is_open is None:
        return result
    x = argument(args, kwargs, 0, "input", "x")
    return norm_over_open(module, x, is_open).to(result.dtype)
