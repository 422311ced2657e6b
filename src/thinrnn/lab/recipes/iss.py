"""Intrinsic sparse structures (ISS) in training: group lasso instead of learned gates.

Every neuron has a gate all the same, fixed at 1 and therefore free: a neuron whose weights have
all become zero is closed, removed and counted as in a gated run.
"""

import torch
from torch import Tensor, nn

import thinrnn
from thinrnn._gates.attach import attached
from thinrnn.plan import Plan

SMALLEST = 1e-4  # weights below are set to zero after each step


class Lasso:
    """The group lasso on all neurons but the embedding's; it follows the model as it shrinks."""

    def __init__(
        self, model: nn.Module, plan: Plan, *, weight: float, smallest: float = SMALLEST
    ) -> None:
        thinrnn.attach_(model, plan, gate=thinrnn.Fixed())
        self.gated = attached(model)
        self.gated.is_frozen = True
        self.weight = weight
        self.smallest = smallest
        self._made_for: Plan | None = None

    @property
    def lasso(self) -> thinrnn.GroupLasso:
        """The penalty on the model as it is now."""
        plan = self.gated.plan
        if self._made_for is not plan:
            hidden = plan.without("embedding") if self._has_own_embedding(plan) else plan
            self._lasso = thinrnn.GroupLasso(self.gated.model, hidden, weight=self.weight)
            self._made_for = plan
        return self._lasso

    def __call__(self) -> Tensor:
        """Return the penalty, to be added to the loss."""
        return self.lasso()

    def threshold_(self) -> None:
        """Set tiny weights to zero; to be called after each step."""
        self.lasso.threshold_(self.smallest)

    @torch.no_grad()
    def close_(self) -> None:
        """Close the gates of neurons that have no weight left."""
        for name, alive in self.lasso.alive().items():
            if not alive.all():
                gate = self.gated.gates[name]
                gate.log_alpha = gate.estimator.placed(alive, gate.log_alpha)

    @staticmethod
    def _has_own_embedding(plan: Plan) -> bool:
        return any(group.name == "embedding" for group in plan.groups)
