"""SGD, Adam or Adadelta for the weights, Adam or the same for the gates, averages: in one.

By hand: torch's optimizers have one rule for all their groups, and `shrink_` slices the state
of one optimizer. Averages are part of that state, so they are cut too, which an `AveragedModel` is
not. Lists of tensors and a learning rate that is a tensor, because a CUDA graph replays the same
kernels on the same addresses.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from thinrnn.lab.recipes.settings import TrainingSettings

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
RHO = 0.95  # of Adadelta


class WeightsAndGates(Optimizer):
    """Steps weights by `rule` and gates by Adam; weight decay is for weights alone.

    Without a `gate_lr` gates are stepped, averaged and clipped like the weights, at their rate.
    `rule` is "sgd", "adam" or "adadelta". With "sgd" the mean of the weights is kept from
    `start_averaging` on; with an `average_decay`, their exponential average from the beginning.
    """

    def __init__(
        self,
        weights: list[nn.Parameter],
        gates: list[nn.Parameter],
        *,
        rule: str,
        lr: float,
        gate_lr: float | None,
        weight_decay: float = 0.0,
        average_decay: float | None = None,
    ) -> None:
        groups = [{"params": weights, "rule": rule, "lr": lr, "weight_decay": weight_decay}]
        own = (rule, lr) if gate_lr is None else ("adam", gate_lr)
        if gates:
            groups.append({"params": gates, "rule": own[0], "lr": own[1], "weight_decay": 0.0})
        super().__init__(groups, {})
        device = weights[0].device
        for group in self.param_groups:
            group["lr"] = torch.tensor(float(group["lr"]), device=device)
        self.weights = [*weights, *gates] if gate_lr is None else weights  # clipped, averaged
        self.scheduled = self.param_groups if gate_lr is None else self.param_groups[:1]
        self.lr = lr
        # float64, because 1 - 0.999 has four correct digits in float32.
        self.steps = torch.zeros((), device=device, dtype=torch.float64)
        self.averaged_steps = torch.zeros((), device=device)
        self.averaging = False
        self.is_fused = device.type == "cuda"  # one pass over the memory instead of many
        self.ema = None if average_decay is None else get_ema_multi_avg_fn(average_decay)
        if self.ema is not None:
            for p in self.weights:
                self.state[p]["average"] = p.detach().clone()

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of what follows it; does not wait for the device."""
        if lr != self.lr:
            for group in self.scheduled:
                group["lr"].fill_(lr)
            self.lr = lr

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        self.steps += 1
        if self.averaging:
            self.averaged_steps += 1
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            grads: list[Tensor] = [p.grad for p in params]
            rule, lr, decay = group["rule"], group["lr"], group["weight_decay"]
            if self.is_fused and rule in ("sgd", "adam"):
                self._apply_fused_(rule, params, grads, lr, decay)
            else:
                if decay:
                    grads = list(torch._foreach_add(grads, params, alpha=decay))
                self._apply_(rule, params, grads, lr)
            if rule == "sgd" and self.averaging:
                self._average(params)
        if self.ema is not None:
            weights: list[Tensor] = list(self.weights)
            self.ema(self._kept(weights, "average"), weights, 0)

    def _apply_(self, rule: str, params: list[Tensor], grads: list[Tensor], lr: Tensor) -> None:
        """Change parameters of one group by its rule."""
        if rule == "adam":
            self._adam(params, grads, lr)
        elif rule == "adadelta":
            self._adadelta(params, grads, lr)
        else:
            torch._foreach_sub_(params, torch._foreach_mul(grads, lr))

    def _apply_fused_(
        self, rule: str, params: list[Tensor], grads: list[Tensor], lr: Tensor, decay: float
    ) -> None:
        """Do the same, decay included, in one pass over the memory."""
        if rule == "sgd":
            _fused_sgd_(params, grads, lr, decay)
            return
        steps = [self.steps.float()] * len(params)
        torch._fused_adam_(
            params,
            grads,
            self._kept(params, "first"),
            self._kept(params, "second"),
            [],
            steps,
            lr=lr,
            beta1=BETA1,
            beta2=BETA2,
            weight_decay=decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )

    def _adam(self, params: list[Tensor], grads: list[Tensor], lr: Tensor) -> None:
        first, second = self._kept(params, "first"), self._kept(params, "second")
        torch._foreach_mul_(first, BETA1)
        torch._foreach_add_(first, grads, alpha=1 - BETA1)
        torch._foreach_mul_(second, BETA2)
        torch._foreach_addcmul_(second, grads, grads, value=1 - BETA2)
        scale = lr * (1 / (1 - BETA1**self.steps)).to(lr.dtype)
        correction = (1 / (1 - BETA2**self.steps).sqrt()).to(lr.dtype)
        roots = torch._foreach_sqrt(second)
        torch._foreach_mul_(roots, correction)
        torch._foreach_add_(roots, EPSILON)
        changes = torch._foreach_div(first, roots)
        torch._foreach_mul_(changes, scale)
        torch._foreach_sub_(params, changes)

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

    def _average(self, params: list[Tensor]) -> None:
        # average += (p - average) / n, by hand: swa_utils' _foreach_lerp_ with a weight that is a
        # tensor would stop the device, which no CUDA graph can capture.
        averages = self._kept(params, "average")
        if self.is_fused:  # a step of SGD down the gradient p with a decay of -1, upside down
            _fused_sgd_(averages, params, -1 / self.averaged_steps, -1.0)
            return
        differences = torch._foreach_sub(params, averages)
        torch._foreach_mul_(differences, 1 / self.averaged_steps)
        torch._foreach_add_(averages, differences)

    def _kept(self, params: list[Tensor], name: str) -> list[Tensor]:
        return [self.state[p].setdefault(name, torch.zeros_like(p)) for p in params]

    def start_averaging(self) -> None:
        """From the next step on keep the mean of the weights after each step."""
        self.averaging = True

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside `with`, the weights are their averages, once averaging has begun."""
        pairs = [
            (p, self.state[p]["average"])
            for group in self.param_groups
            for p in group["params"]
            if "average" in self.state[p]
        ]
        raw = [p.detach().clone() for p, _ in pairs]
        with torch.no_grad():
            for p, average in pairs:
                p.copy_(average)
        try:
            yield
        finally:
            with torch.no_grad():
                for (p, _), value in zip(pairs, raw, strict=True):
                    p.copy_(value)

    def snapshot(self, names: dict[Tensor, str]) -> dict[str, Any]:
        """Return all that a step depends on, parameters by name."""
        return {
            "state": {names[p]: dict(state) for p, state in self.state.items() if state},
            "steps": self.steps,
            "averaged_steps": self.averaged_steps,
            "averaging": self.averaging,
        }

    def restore_(self, saved: dict[str, Any], names: dict[Tensor, str]) -> None:
        """Take back what `snapshot` returned; the parameters have their shapes already."""
        params = {name: p for p, name in names.items()}
        self.state.clear()
        for name, state in saved["state"].items():
            self.state[params[name]] = {k: v.to(params[name].device) for k, v in state.items()}
        self.steps.copy_(saved["steps"])
        self.averaged_steps.copy_(saved["averaged_steps"])
        self.averaging = saved["averaging"]


def _fused_sgd_(params: list[Tensor], grads: list[Tensor], lr: Tensor, decay: float) -> None:
    """params -= lr * (grads + decay * params)"""
    torch._fused_sgd_(
        params,
        grads,
        [],
        weight_decay=decay,
        momentum=0.0,
        lr=lr,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    )


def make_optimizer(settings: TrainingSettings, model: nn.Module) -> WeightsAndGates:
    """Return the optimizer of a model, gated or not."""
    named = dict(model.named_parameters())
    return WeightsAndGates(
        [p for name, p in named.items() if not name.startswith("thinrnn:")],
        [p for name, p in named.items() if name.startswith("thinrnn:")],
        rule="sgd" if settings.optimizer == "nt-asgd" else settings.optimizer,
        lr=settings.lr,
        gate_lr=None if settings.steps_gates_like_weights else settings.gate_lr,
        weight_decay=settings.weight_decay,
        average_decay=settings.average_decay,
    )
