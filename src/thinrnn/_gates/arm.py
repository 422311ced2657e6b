"""ARM: gates that are 0 or 1 in training, with an unbiased gradient from two forward passes.

uniform u ──┬──▶ b  = [u < p]      ──▶ closure() ──▶ f(b)  ─┐
            └──▶ b~ = [1 - u < p]  ──▶ closure() ──▶ f(b~) ─┴──▶ (f(b) - f(b~)) * direction
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from thinrnn._gates.attach import attached
from thinrnn._gates.distributed import has_others
from thinrnn.errors import GateError


@dataclass(frozen=True)
class ARM:
    """A Bernoulli gate, trained with an unbiased gradient. Compute the loss with `arm_loss`.

    In training a gate is 1 with probability p = sigmoid(log_alpha), otherwise 0. `HardConcrete`
    learns from a relaxed gate instead, whose gradient is not that of the binary one. In eval a gate
    is p where p is above 1/2, otherwise 0.

    The gradient is that of DisARM (also called U2G): the mean of the ARM gradient over all noise
    that gives the same two samples. It needs the same two forward passes and varies less.

    Args:
        mean: Mean of the normal distribution that `log_alpha` starts from.
        std: Its standard deviation.

    Example:
        >>> thinrnn.ARM().value(torch.tensor([-3.0, 0.0, 9.0]))
        tensor([0.0000, 0.0000, 0.9999])
    """

    mean: float = 2.5
    std: float = 0.1

    def start(self, size: int) -> Tensor:
        return self.mean + self.std * torch.randn(size)

    def sample(self, log_alpha: Tensor, uniform: Tensor) -> Tensor:
        if log_alpha.requires_grad and torch.is_grad_enabled():
            raise GateError(
                "gates by ARM learn from two forward passes, but the model was called on its own: "
                "write loss = thinrnn.arm_loss(model, lambda: criterion(model(x), y))."
            )
        return (uniform < torch.sigmoid(log_alpha)).to(log_alpha.dtype)

    def direction(self, log_alpha: Tensor, uniform: Tensor) -> Tensor:
        """Return what f(b) - f(b~) is multiplied by to give the gradient of `log_alpha`."""
        b, opposite = self.sample(log_alpha, uniform), self.sample(log_alpha, 1 - uniform)
        return (b - opposite) * torch.sigmoid(log_alpha.abs()) / 2

    def value(self, log_alpha: Tensor) -> Tensor:
        return torch.sigmoid(log_alpha) * (log_alpha > 0)

    def open_probability(self, log_alpha: Tensor) -> Tensor:
        return torch.sigmoid(log_alpha)

    def placed(self, is_open: Tensor, log_alpha: Tensor) -> Tensor:
        return torch.where(is_open, log_alpha.clamp(min=1), log_alpha.clamp(max=-5))


def arm_loss(model: nn.Module, closure: Callable[[], Tensor]) -> Tensor:
    """Return the loss of a model with `ARM` gates, whose `backward()` gives an unbiased gradient.

    Calls the closure twice, with opposite samples of the gates and the same other random numbers,
    such as dropout: first without gradients, then with them. Gates are drawn once per pass, so the
    closure may call the model several times. The second pass gives the loss and the gradient of
    the weights. In eval, and once a `Target` is settled, the closure is called once.

    Args:
        model: A model with gates, from `attach_(model, plan, gate=ARM())`.
        closure: Computes the loss, a single number, from a call of the model. Do not call
            `backward()` in it. Add penalties to what `arm_loss` returns.

    Returns:
        The loss of the second pass.

    Raises:
        GateError: The model has no gates, gates of another kind, or several processes train.

    Example:
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> plan = thinrnn.find_groups(model, x)
        >>> _ = thinrnn.attach_(model, plan, gate=thinrnn.ARM())
        >>> loss = thinrnn.arm_loss(model, lambda: model(x)[0].square().mean())
        >>> loss.backward()
        >>> thinrnn.gates(model)["l0"].log_alpha.grad.shape
        torch.Size([8])
    """
    gated = attached(model)
    arm = gated.estimator
    if not isinstance(arm, ARM):
        raise GateError(
            f"arm_loss needs gates by ARM, but these are {type(arm).__name__}: "
            "call attach_(model, plan, gate=thinrnn.ARM())."
        )
    if gated.is_frozen or not model.training:
        return closure()
    if has_others():
        raise GateError(
            "arm_loss draws gates of its own in each process: train in one process, or attach "
            "gates with HardConcrete()."
        )
    groups = list(gated.gates)
    log_alpha, uniform = gated.noisy(groups)
    with torch.no_grad():
        b, opposite = (arm.sample(log_alpha, u) for u in (uniform, 1 - uniform))
        direction = arm.direction(log_alpha, uniform)
        devices = [log_alpha.device] if log_alpha.is_cuda else []
        with torch.random.fork_rng(devices), gated.using(gated.split(groups, opposite)):
            other = closure()
    with gated.using(gated.split(groups, b)):
        loss = closure()
    gradient = (loss.detach() - other) * direction
    # 0, with this gradient
    return loss + (gradient * (log_alpha - log_alpha.detach())).sum().to(loss.dtype)
