"""L0: the paper's penalty, the expected number of neuron pairs in each recurrent matrix."""

import fnmatch
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from thinrnn.attach import attached
from thinrnn.errors import PlanError


class L0:
    """The paper's objective: a weight per matrix times its expected number of neuron pairs.

    For a layer with input gates z and hidden gates s, and Phi = P(gate != 0):

        lambda_1 * sum Phi(z) * sum Phi(s)
      + lambda_2 * [(sum Phi(s))^2 - sum Phi(s)^2 + sum Phi(s)]

    `weight` is one number for all recurrent matrices, or a mapping from patterns of parameter
    names (as they were when gates were attached) to numbers, which may also name other matrices:
    `{"lstm.weight_ih_l0": 2e-7, "lstm.weight_hh_*": 8.6e-8}`. The first pattern that fits counts.

    >>> penalty = L0(model, weight=8.6e-8)
    >>> loss = criterion(model(x), y) + penalty()
    """

    def __init__(self, model: nn.Module, *, weight: float | Mapping[str, float]) -> None:
        self.gated = attached(model)
        entries = self.gated.sizes.entries
        if isinstance(weight, Mapping):
            for pattern in weight:
                if not any(fnmatch.fnmatchcase(e.name, pattern) for e in entries):
                    names = ", ".join(e.name for e in entries if e.gates)
                    raise PlanError(f"no parameter matches '{pattern}'; recurrent are: {names}.")
            fitting = {
                e.name: [w for p, w in weight.items() if fnmatch.fnmatchcase(e.name, p)]
                for e in entries
            }
            self.weights = {name: found[0] for name, found in fitting.items() if found}
        else:
            self.weights = {e.name: float(weight) for e in entries if e.gates}

    def __call__(self) -> Tensor:
        """Return the penalty, to be added to the loss."""
        present = self.gated.open_probabilities()
        total = torch.zeros((), device=next(iter(present.values())).device)
        for name, weight in self.weights.items():
            entry = self.gated.sizes.names[name]
            pairs = entry.elements(present) / max(entry.gates, 1)
            total = total + weight * pairs
        return total
