"""magnitude_: the one-shot baseline, neurons with the smallest weights closed at once."""

import torch
from torch import nn

from thinrnn._gates.attach import attach_, attached
from thinrnn._gates.estimators import Fixed
from thinrnn._penalties.group_lasso import squared_norms
from thinrnn._penalties.target import read_limits, select_neurons
from thinrnn.plan import Plan


def magnitude_(
    model: nn.Module, plan: Plan, *, params: float | None = None, macs: float | None = None
) -> nn.Module:
    """Put fixed gates on the model, closed for the neurons with the smallest weights.

    Norms are compared after division by their mean within the group. The size, `params`, `macs` or
    both, a fraction (<= 1) or a number, is not exceeded. Train on, then `compact`.
    """
    plan = plan.fitted(model)
    with torch.no_grad():
        norms = {g.name: squared_norms(model, g).sqrt().double().cpu() for g in plan.groups}
    attach_(model, plan, gate=Fixed())
    try:
        gated = attached(model)
        _, goal = read_limits(gated.sizes, params=params, macs=macs)
        scores = {name: norm / norm.mean().clamp(min=1e-30) for name, norm in norms.items()}
        chosen = select_neurons(gated.sizes, scores, goal)
    except Exception:
        attached(model).remove()
        raise
    for name, gate in gated.gates.items():
        gate.log_alpha = chosen[name].float() * 2 - 1
        gate.log_alpha.requires_grad_(False)
    return model
