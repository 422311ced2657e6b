"""The gates of one group: one learned number per neuron, zero in the end where it is removed."""

import torch
from torch import Tensor, nn

from thinrnn._gates.estimators import Estimator
from thinrnn.errors import GateError


class Gate:
    """The gates of one group: the learned parameter, and how to read it.

    `gates(model)` returns them. The parameter itself lives on the model, so that it is trained,
    moved and saved with it.

    Attributes:
        name: The name of the group.
        full_size: How many neurons the group had when gates were attached.
        size: How many neurons it has now, after `shrink_`.
        log_alpha: The learned parameter, one number per neuron; may be set to a tensor or a number.
        value: The gates in eval, between 0 and 1.
        keep: True for each neuron that `compact` keeps.
        open_probability: The probability that a gate is not 0 in training, differentiable.
        origin: Which of the original neurons are still here, as indices.

    Example:
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> _ = thinrnn.attach_(model, thinrnn.find_groups(model, x))
        >>> gate = thinrnn.gates(model)["l0"]
        >>> gate.log_alpha = torch.tensor([9.0, -9, 9, 9, -9, 9, 9, 9])
        >>> gate
        Gate('l0', 6 of 8 open)
        >>> gate.keep.nonzero().flatten().tolist()
        [0, 2, 3, 5, 6, 7]
    """

    def __init__(self, name: str, home: nn.Module, estimator: Estimator, start: Tensor) -> None:
        self.name = name
        self.home = home
        self.estimator = estimator
        self.full_size = len(start)  # how many neurons the group had when gates were attached
        self.start = start.detach().cpu().clone()  # `log_alpha` of each of them at that time

    def key(self, what: str) -> str:
        """Return the name in the model's `state_dict` of one of the tensors."""
        return f"thinrnn:{self.name.replace('.', '/')}:{what}"

    @property
    def log_alpha(self) -> nn.Parameter:
        """The learned parameter, one number per neuron."""
        parameter = self.home._parameters[self.key("log_alpha")]
        assert parameter is not None
        return parameter

    @log_alpha.setter
    def log_alpha(self, value: Tensor | float) -> None:
        with torch.no_grad():
            self.log_alpha.copy_(torch.as_tensor(value).expand_as(self.log_alpha))

    @property
    def origin(self) -> Tensor:
        """Which neurons of the group, as it was when gates were attached, are still here."""
        buffer = self.home._buffers[self.key("origin")]
        assert buffer is not None
        return buffer

    @property
    def size(self) -> int:
        """How many neurons the group has now."""
        return self.log_alpha.numel()

    @property
    def wide_log_alpha(self) -> Tensor:
        """`log_alpha` in at least float32: bfloat16 has too few bits near 1."""
        log_alpha = self.log_alpha
        return log_alpha.float() if log_alpha.dtype in (torch.bfloat16, torch.half) else log_alpha

    @property
    def value(self) -> Tensor:
        """The gates in eval, between 0 and 1."""
        return self.estimator.value(self.wide_log_alpha)

    @property
    def open_probability(self) -> Tensor:
        """The probability that each gate is not 0 in training, differentiable."""
        return self.estimator.open_probability(self.wide_log_alpha)

    @property
    def keep(self) -> Tensor:
        """True for each neuron that `compact` keeps."""
        with torch.no_grad():
            return self.value > 0

    def check(self) -> None:
        """Raise if the gates are not numbers."""
        if torch.isnan(self.log_alpha).any():
            raise GateError(
                f"group '{self.name}' has gates that are NaN: training has diverged. "
                "Go back to an earlier checkpoint and lower gate_lr or clip the gradients."
            )

    def __repr__(self) -> str:
        return f"Gate('{self.name}', {int(self.keep.sum())} of {self.size} open)"
