"""The weights of a model in training, gated or not, written down and brought back."""

from typing import Any

from torch import Tensor, nn

import thinrnn
from thinrnn.lab.recipes.iss import Lasso

Penalty = thinrnn.L0 | thinrnn.Target | Lasso


def weights_of(model: nn.Module, penalty: Penalty | None) -> dict[str, Any]:
    """Return copies of a model's weights and gates, what is left of it, and its penalty's state."""
    return {
        "kept": thinrnn.kept(model) if penalty is not None else None,
        "tensors": {name: t.detach().clone() for name, t in model.state_dict().items()},
        "penalty": penalty.state_dict() if isinstance(penalty, thinrnn.Target) else None,
    }


def set_weights_(model: nn.Module, penalty: Penalty | None, saved: dict[str, Any]) -> None:
    """Make a freshly built model what `weights_of` wrote down."""
    if saved["kept"] is not None:
        thinrnn.cut_(model, saved["kept"])
    model.load_state_dict(saved["tensors"])
    if isinstance(penalty, thinrnn.Target):
        penalty.load_state_dict(saved["penalty"])


def names_of(model: nn.Module) -> dict[Tensor, str]:
    return {p: name for name, p in model.named_parameters()}
