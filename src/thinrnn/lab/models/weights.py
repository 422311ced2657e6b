"""The weights of a model in training, gated or not, written down and brought back."""

from typing import Any, Protocol

from torch import Tensor, nn

import thinrnn
from thinrnn._gates.attach import is_attached


class Stateful(Protocol):
    """What closes the gates of a run."""

    def state_dict(self) -> dict[str, Any] | None: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def weights_of(model: nn.Module, pruning: Stateful) -> dict[str, Any]:
    """Return copies of a model's weights and gates, what is left of it, and its pruning."""
    return {
        "kept": thinrnn.kept_neurons(model) if is_attached(model) else None,
        "tensors": {name: t.detach().clone() for name, t in model.state_dict().items()},
        "penalty": pruning.state_dict(),
    }


def set_weights_(model: nn.Module, pruning: Stateful, saved: dict[str, Any]) -> None:
    """Make a freshly built model what `weights_of` wrote down."""
    if saved["kept"] is not None:
        thinrnn.cut_(model, saved["kept"])
    model.load_state_dict(saved["tensors"])
    if saved["penalty"] is not None:
        pruning.load_state_dict(saved["penalty"])


def names_of(model: nn.Module) -> dict[Tensor, str]:
    return {p: name for name, p in model.named_parameters()}
