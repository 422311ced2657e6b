"""Adam or Adadelta for the weights with an exponential average, Adam for the gates."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn.lab.recipes.optimizer import WeightsAndGates

RHO, EPSILON = 0.95, 1e-8


class MovingAverage(WeightsAndGates):
    """Steps weights by "adam" or "adadelta"; `averaged()` shows their exponential average."""

    def __init__(
        self,
        weights: list[nn.Parameter],
        gates: list[nn.Parameter],
        *,
        decay: float,
        **options: Any,
    ) -> None:
        super().__init__(weights, gates, **options)
        self.decay = decay
        for p in weights:
            self.state[p]["average"] = p.detach().clone()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        super().step()
        weights: list[Tensor] = list(self.weights)
        averages: list[Tensor] = [self.state[p]["average"] for p in weights]
        torch._foreach_mul_(averages, self.decay)
        torch._foreach_add_(averages, weights, alpha=1 - self.decay)

    def _apply_(self, rule: str, params: list[Tensor], grads: list[Tensor], lr: Tensor) -> None:
        if rule == "adadelta":
            self._adadelta(params, grads, lr)
        else:
            super()._apply_(rule, params, grads, lr)

    def _adadelta(self, params: list[Tensor], grads: list[Tensor], lr: Tensor) -> None:
        squares, changes = self._kept(params, "second"), self._kept(params, "changes")
        torch._foreach_mul_(squares, RHO)
        torch._foreach_addcmul_(squares, grads, grads, value=1 - RHO)
        above, below = torch._foreach_add(changes, EPSILON), torch._foreach_add(squares, EPSILON)
        torch._foreach_div_(above, below)
        torch._foreach_sqrt_(above)
        torch._foreach_mul_(above, grads)
        torch._foreach_mul_(changes, RHO)
        torch._foreach_addcmul_(changes, above, above, value=1 - RHO)
        torch._foreach_mul_(above, lr)
        torch._foreach_sub_(params, above)
