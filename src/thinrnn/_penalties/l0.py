"""L0: the paper's penalty, the expected number of neuron pairs in each recurrent matrix."""

import fnmatch
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from thinrnn._gates.attach import attached
from thinrnn.errors import PlanError


class L0:
    """The paper's objective: a weight per matrix times its expected number of neuron pairs.

    For a layer with input gates z and hidden gates s, and Phi = P(gate != 0):

        lambda_1 * sum Phi(z) * sum Phi(s)
      + lambda_2 * [(sum Phi(s))^2 - sum Phi(s)^2 + sum Phi(s)]

    Call it in each training step and add the result to the loss.

    Args:
        model: A model with gates, from `attach_`.
        weight: One number for all recurrent matrices, or a mapping from patterns of parameter
            names (as they were when gates were attached) to numbers, which may also name other
            matrices. The first pattern that fits counts; other matrices cost nothing.

    Raises:
        GateError: The model has no gates.
        PlanError: No parameter fits a pattern.

    Example:
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> _ = thinrnn.attach_(model, thinrnn.find_groups(model, x))
        >>> penalty = thinrnn.L0(model, weight={"weight_ih_l0": 2e-5, "weight_hh_*": 8e-6})
        >>> loss = model(x)[0].square().mean() + penalty()
        >>> loss.backward()
    """

    def __init__(self, model: nn.Module, *, weight: float | Mapping[str, float]) -> None:
        self.gated = attached(model)
        entries = self.gated.sizes.entries
        if isinstance(weight, Mapping):
            for pattern in weight:
                if not any(fnmatch.fnmatchcase(e.name, pattern) for e in entries):
                    names = ", ".join(e.name for e in entries if e.gates)
                    raise PlanError(f"no parameter matches '{pattern}'; recurrent are: {names}.")
            weights = [_first_fitting(weight, e.name) for e in entries]
        else:
            weights = [float(weight) if e.gates else 0.0 for e in entries]
        # a neuron pair counts once, however many gates of a cell it has weights in
        per_pair = [w / max(e.gates, 1) for w, e in zip(weights, entries, strict=True)]
        self.weights = torch.tensor(per_pair, dtype=torch.float64)

    def __call__(self) -> Tensor:
        """Return the penalty, to be added to the loss."""
        elements = self.gated.sizes.elements(self.gated.open_probabilities())
        if self.weights.device != elements.device or self.weights.dtype != elements.dtype:
            self.weights = self.weights.to(elements)
        return elements @ self.weights


def _first_fitting(weight: Mapping[str, float], name: str) -> float:
    return next((w for pattern, w in weight.items() if fnmatch.fnmatchcase(name, pattern)), 0.0)
