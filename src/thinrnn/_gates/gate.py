"""Gates: one number per neuron, learned, that ends at zero for the neurons to remove.

                       training                            eval
    log_alpha ──▶ sample() ~ hard concrete  ───┐   value() = its test-time estimate ──┐
        │                                      ▼                                      ▼
        │                          columns that read the neuron are multiplied by it
        └──▶ open_probability() = P(gate != 0) ──▶ penalties

An estimator is three functions of `log_alpha`; another one (ARM, straight-through) is a class with
the same methods, given to `attach_(model, plan, gate=...)`.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from thinrnn.errors import GateError


class Estimator(Protocol):
    """What turns `log_alpha`, one number per neuron, into gates."""

    def start(self, size: int) -> Tensor:
        """Return the first `log_alpha` of a group of `size` neurons."""
        ...

    def sample(self, log_alpha: Tensor, uniform: Tensor) -> Tensor:
        """Return one random gate per neuron, differentiable, from noise in [0, 1)."""
        ...

    def value(self, log_alpha: Tensor) -> Tensor:
        """Return the gates that are used in eval; exactly 0 for a closed one."""
        ...

    def open_probability(self, log_alpha: Tensor) -> Tensor:
        """Return P(gate != 0), differentiable."""
        ...

    def placed(self, is_open: Tensor, log_alpha: Tensor) -> Tensor:
        """Return `log_alpha` moved just as far as puts each neuron on the wanted side."""
        ...


@dataclass(frozen=True)
class HardConcrete:
    """The stretched and clamped binary concrete gate of the paper.

    `mean` and `std` are those of the normal distribution that `log_alpha` starts from.

    >>> HardConcrete().value(torch.tensor([-3.0, 0.0, 9.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """

    beta: float = 2 / 3
    gamma: float = -0.1
    zeta: float = 1.1
    mean: float = 1.0
    std: float = 0.1

    def start(self, size: int) -> Tensor:
        return self.mean + self.std * torch.randn(size)

    def sample(self, log_alpha: Tensor, uniform: Tensor) -> Tensor:
        u = uniform.clamp(1e-6, 1 - 1e-6)  # log(0) and log(1 - 1) are out of reach
        t = torch.sigmoid((torch.log(u) - torch.log1p(-u) + log_alpha) / self.beta)
        return (t * (self.zeta - self.gamma) + self.gamma).clamp(0, 1)

    def value(self, log_alpha: Tensor) -> Tensor:
        t = torch.sigmoid(log_alpha)
        return (t * (self.zeta - self.gamma) + self.gamma).clamp(0, 1)

    def open_probability(self, log_alpha: Tensor) -> Tensor:
        return torch.sigmoid(log_alpha - self.beta * math.log(-self.gamma / self.zeta))

    def placed(self, is_open: Tensor, log_alpha: Tensor) -> Tensor:
        edge = math.log(-self.gamma / self.zeta)  # value() is 0 from here down
        return torch.where(is_open, log_alpha.clamp(min=edge + 1), log_alpha.clamp(max=edge - 4))


@dataclass(frozen=True)
class Fixed:
    """Gates that are not learned: 1 where `log_alpha` is above 0, otherwise 0.

    >>> Fixed().value(torch.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """

    def start(self, size: int) -> Tensor:
        return torch.ones(size)

    def sample(self, log_alpha: Tensor, uniform: Tensor) -> Tensor:
        return self.value(log_alpha)

    def value(self, log_alpha: Tensor) -> Tensor:
        return (log_alpha > 0).to(log_alpha.dtype)

    def open_probability(self, log_alpha: Tensor) -> Tensor:
        return self.value(log_alpha)

    def placed(self, is_open: Tensor, log_alpha: Tensor) -> Tensor:
        return is_open.to(log_alpha.dtype) * 2 - 1


class Gate:
    """The gates of one group: what is learned (`log_alpha`) and how to read it.

    The parameter lives on the gated model, so that it is trained, moved and saved with it.
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
        """P(gate != 0) per neuron, differentiable."""
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
