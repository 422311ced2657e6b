"""GroupLasso: intrinsic sparse structures (ISS), the baseline of the paper, on the same Plan."""

import torch
from torch import Tensor, nn

from thinrnn._gates.attach import attach_, gates
from thinrnn._gates.gate import Fixed
from thinrnn._penalties.norms import index_on, squared_norms, weight_slices
from thinrnn.plan import Plan


class GroupLasso:
    """A weight times the sum, over neurons, of the norm of all weights that the neuron owns.

    No gates: call it once per training step and add the result to the loss, call `threshold_`
    after each optimizer step, and at the end `close_`, which puts fixed gates on the model that
    are closed where a neuron's weights are all zero; `compact` works from there.

        lasso = GroupLasso(model, plan, weight=7.0e-5)
        loss = criterion(model(x), y) + lasso()
    """

    def __init__(self, model: nn.Module, plan: Plan, *, weight: float) -> None:
        self.model = model
        self.plan = plan.fitted(model)
        self.weight = weight

    def __call__(self) -> Tensor:
        """Return the penalty, to be added to the loss."""
        tiny = 1e-16  # the square root has no slope at zero
        norms = [(squared_norms(self.model, g) + tiny).sqrt().sum() for g in self.plan.groups]
        return self.weight * torch.stack(norms).sum()

    @torch.no_grad()
    def threshold_(self, smallest: float = 1e-4) -> None:
        """Set to zero every weight of the groups that is smaller than `smallest`."""
        for group in self.plan.groups:
            for tensor, s in weight_slices(self.model, group):
                positions = index_on(tensor.device, s)[0]
                if len(positions) == tensor.shape[s.dim]:
                    tensor.masked_fill_(tensor.abs() < smallest, 0)
                    continue
                part = tensor.index_select(s.dim, positions)
                part.masked_fill_(part.abs() < smallest, 0)
                tensor.index_copy_(s.dim, positions, part)

    def alive(self) -> dict[str, Tensor]:
        """Return, per group, which neurons still own a weight that is not zero."""
        with torch.no_grad():
            return {g.name: squared_norms(self.model, g) > 0 for g in self.plan.groups}

    def close_(self) -> nn.Module:
        """Put fixed gates on the model, closed where a neuron's weights are all zero."""
        alive = self.alive()
        attach_(self.model, self.plan, gate=Fixed())
        for name, gate in gates(self.model).items():
            gate.log_alpha = alive[name].float() * 2 - 1
            gate.log_alpha.requires_grad_(False)
        return self.model
