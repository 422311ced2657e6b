"""Estimators: how `log_alpha`, one learned number per neuron, becomes a gate.

                   training                            eval
log_alpha ──▶ sample() ~ hard concrete  ───┐   value() = its test-time estimate ──┐
    │                                      ▼                                      ▼
    │                          columns that read the neuron are multiplied by it
    └──▶ open_probability() = P(gate != 0) ──▶ penalties
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Estimator(Protocol):
    """How `log_alpha`, one learned number per neuron, becomes gates.

    `HardConcrete` and `Fixed` are estimators. To use another one, give `attach_` an object with
    these five methods; it need not derive from this class.

    Example:
        >>> class StraightThrough:
        ...     def start(self, size):
        ...         return 2 + 0.1 * torch.randn(size)
        ...     def sample(self, log_alpha, uniform):
        ...         p = torch.sigmoid(log_alpha)
        ...         return (uniform < p).to(p) + p - p.detach()
        ...     def value(self, log_alpha):
        ...         return (log_alpha > 0).to(log_alpha)
        ...     def open_probability(self, log_alpha):
        ...         return torch.sigmoid(log_alpha)
        ...     def placed(self, is_open, log_alpha):
        ...         return torch.where(is_open, log_alpha.clamp(min=0.5), log_alpha.clamp(max=-4))
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> plan = thinrnn.find_groups(model, x)
        >>> _ = thinrnn.attach_(model, plan, gate=StraightThrough())
    """

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
        """Return `log_alpha`, moved only as far as it takes to open or close each gate."""
        ...


@dataclass(frozen=True)
class HardConcrete:
    """The stretched and clamped binary concrete gate of the paper.

    A sample is exactly 0 or 1 with a probability above zero, and has a gradient in between.

    Args:
        beta: Temperature of the samples: the lower, the nearer to 0 and 1.
        gamma: Lower end of the stretched interval, below 0.
        zeta: Upper end of the stretched interval, above 1.
        mean: Mean of the normal distribution that `log_alpha` starts from.
        std: Its standard deviation.

    Example:
        >>> thinrnn.HardConcrete().value(torch.tensor([-3.0, 0.0, 9.0]))
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

    The baselines (`GroupLasso`, `magnitude_`) use them. Set `log_alpha` to choose neurons yourself.

    Example:
        >>> thinrnn.Fixed().value(torch.tensor([-1.0, 1.0]))
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
