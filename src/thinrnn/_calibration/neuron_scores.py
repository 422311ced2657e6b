"""neuron_scores: what each neuron of a trained model is worth, from a few calls."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from thinrnn._calibration.criteria import Loss, Score
from thinrnn._calibration.prune import Calibration
from thinrnn.plan import Plan


def neuron_scores(
    model: nn.Module,
    data: Iterable[Any],
    *,
    score: Score = "reconstruct",
    loss: Loss | None = None,
    plan: Plan | None = None,
) -> dict[str, Tensor]:
    """Return what removing each neuron of a trained model would cost, by group.

    `Target(model, start=...)` takes them, so that gates begin with what the model itself tells.

    Args:
        model: A trained model without gates.
        data: Example calls, as for `prune`.
        score: As for `prune`.
        loss: As for `prune`.
        plan: As for `prune`.

    Returns:
        For each group a tensor with one number per neuron, small for those to remove first.

    Raises:
        CalibrationError: There is no call, or what the model reads is not finite.

    >>> model = nn.LSTM(4, 16, num_layers=2)
    >>> scores = neuron_scores(model, [torch.randn(20, 8, 4) for _ in range(5)])
    >>> {name: len(errors) for name, errors in scores.items()}
    {'input': 4, 'l0': 16}
    """
    errors = Calibration(model, data, plan=plan).errors(score, loss)
    return {name: error.clone() for name, error in errors.items()}
