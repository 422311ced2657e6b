"""magnitude_: the one-shot baseline, neurons with the smallest weights closed at once."""

from torch import nn

from thinrnn._gates.attach import attach_, attached
from thinrnn._gates.estimators import Fixed
from thinrnn._penalties.group_lasso import norms
from thinrnn._penalties.limits import read_limits
from thinrnn._penalties.selection import select_neurons
from thinrnn.plan import Plan


def magnitude_(
    model: nn.Module, plan: Plan, *, params: float | None = None, macs: float | None = None
) -> nn.Module:
    """Put fixed gates on a trained model, in place, closed for the neurons with the least weight.

    The baseline that prunes at once. A neuron counts by the norm of all weights that it owns,
    divided by the mean norm of its group. Go on training, then call `compact`.

    Args:
        model: A model without gates.
        plan: The groups of neurons, from `find_groups`.
        params: Parameters to end with at most: a fraction of the full size (up to 1), or a number.
        macs: Mult-adds per step to end with at most, given the same way.

    Returns:
        The same model.

    Raises:
        GateError: The model has gates already, or weights that are NaN or infinite.
        TargetError: No limit is given, or no choice of neurons meets it.

    Example:
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> _ = thinrnn.magnitude_(model, thinrnn.find_groups(model, x), params=0.7)
        >>> thinrnn.count(thinrnn.compact(model)).params <= 0.7 * 1024
        True
    """
    plan = plan.fitted(model)
    weights = {g.name: norms(model, g).double().cpu() for g in plan.groups}
    attach_(model, plan, gate=Fixed())
    try:
        gated = attached(model)
        _, goal = read_limits(gated.sizes, params=params, macs=macs)
        scores = {name: norm / norm.mean().clamp(min=1e-30) for name, norm in weights.items()}
        chosen = select_neurons(gated.sizes, scores, goal)
    except Exception:
        attached(model).remove()
        raise
    for name, gate in gated.gates.items():
        gate.log_alpha = chosen[name].float() * 2 - 1
        gate.log_alpha.requires_grad_(False)
    return model
