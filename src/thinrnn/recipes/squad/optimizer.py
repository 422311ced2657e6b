"""Adam or Adadelta for the weights with an exponential average, Adam for the gates."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn.recipes.optimizer import WeightsAndGates

RHO, EPSILON = 0.95, 1e-8


class MovingAverage(WeightsAndGates):
    """Steps weights by "adam" or "adadelta"; `averaged()` shows their exponential average."""

    def __init__(
        self,
        weights: list[nn.Parameter],
        gates: list[nn.Parameter],
        *,
        rule: str,
        lr: float,
        gate_lr: float,
        weight_decay: float = 0.0,
        decay: float,
    ) -> None:
        super().__init__(
            weights, gates, rule=rule, lr=lr, gate_lr=gate_lr, weight_decay=weight_decay
        )
        self.decay = decay
        for p in weights:
            self.state[p]["average"] = p.detach().clone()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        self.steps += 1
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            grads: list[Tensor] = [p.grad for p in params]
            if group["weight_decay"]:
                grads = list(torch._foreach_add(grads, params, alpha=group["weight_decay"]))
            update = self._adam if group["rule"] == "adam" else self._adadelta
            update(params, grads, group["lr"])
        weights: list[Tensor] = list(self.weights)
        averages: list[Tensor] = [self.state[p]["average"] for p in weights]
        torch._foreach_mul_(averages, self.decay)
        torch._foreach_add_(averages, weights, alpha=1 - self.decay)

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
