"""fold_: frozen gates go into the weights, and cost nothing from then on."""

from collections.abc import Iterable

import torch
from torch.optim import Optimizer

from thinrnn._gates.attach import Attached
from thinrnn._gates.scaled_weight import along

FULLY_OPEN = 1e4  # log_alpha of a gate that is exactly 1
AVERAGES = ("ax", "average")  # under these names optimizers keep means of a parameter


@torch.no_grad()
def fold_(gated: Attached, optimizers: Iterable[Optimizer]) -> None:
    """Multiply the weights by frozen gates, which are 1 afterwards."""
    values = {name: gate.value for name, gate in gated.gates.items()}
    for reader in gated.readers:
        weight = reader.weight
        factors = along(reader.factors(values).to(weight.dtype), weight, reader.dim)
        weight *= factors
        for optimizer in optimizers:  # averages of the weight; moments follow by themselves
            for key, kept in optimizer.state.get(weight, {}).items():
                if key in AVERAGES:
                    kept *= factors
    for gate in gated.gates.values():
        gate.log_alpha = torch.where(gate.value > 0, FULLY_OPEN, gate.log_alpha)
