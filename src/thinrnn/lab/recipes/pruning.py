"""How a run closes gates: by a size target, the paper's penalty or group lasso, in one interface.

step()      before each training step        Target
penalty()   added to the loss                L0, group lasso
update_()   after each optimizer step        group lasso
close_()    at the end of each epoch         group lasso
finish_()   after the last step              group lasso
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import thinrnn
from thinrnn._gates.attach import attached, is_attached
from thinrnn.lab.recipes.settings import TrainingSettings
from thinrnn.plan import Plan


class Pruning:
    """Nothing is pruned: a dense model or the control. The others do less or more than this."""

    is_on = False
    keeps_best = True  # of the epochs of the final size the best one is kept, not the last
    params: int | None = None  # to end with
    target: thinrnn.Target | None = None  # for `compact`, if training is cut short

    @property
    def is_final(self) -> bool:
        """Whether the model has the size that it ends with."""
        return True

    def step(self) -> bool:
        """Close gates before a training step; return whether they have just become final."""
        return False

    def penalty(self) -> Tensor | float:
        """Return what is added to the loss."""
        return 0.0

    def update_(self) -> None:
        """Change the weights after an optimizer step."""

    def close_(self) -> None:
        """Close gates at the end of an epoch."""

    def finish_(self) -> None:
        """Close gates for the last time, on the weights that are evaluated."""

    def progress_at(self, step: int) -> float:
        """Return how far the size has come down after this many steps, from 0 to 1."""
        return 1.0

    def state_dict(self) -> dict[str, Any] | None:
        """Return what a checkpoint needs besides the gates."""
        return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""


class ToTarget(Pruning):
    """Down to a size, step by step."""

    is_on = True

    def __init__(self, target: thinrnn.Target) -> None:
        self.target: thinrnn.Target = target
        self.params = int(target.goal["params"]) if "params" in target.goal else None

    @property
    def is_final(self) -> bool:
        return self.target.is_settled

    def step(self) -> bool:
        was_final = self.is_final
        self.target.step()
        return self.is_final and not was_final

    def progress_at(self, step: int) -> float:
        return self.target.progress_at(step)

    def state_dict(self) -> dict[str, Any]:
        return self.target.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.target.load_state_dict(state)


class ByL0(Pruning):
    """The paper's penalty; the last weights count."""

    is_on = True
    keeps_best = False

    def __init__(self, model: nn.Module, *, weight: float | Mapping[str, float]) -> None:
        self.l0 = thinrnn.L0(model, weight=weight)

    def penalty(self) -> Tensor:
        return self.l0()


class ByLasso(Pruning):
    """Intrinsic sparse structures (ISS): group lasso on neurons, not the embedding's by default.

    Every neuron has a gate all the same, fixed at 1 and therefore free: a neuron whose weights have
    all become zero is closed, removed and counted as in a gated run.
    """

    is_on = True
    keeps_best = False

    def __init__(self, model: nn.Module, plan: Plan, settings: TrainingSettings) -> None:
        thinrnn.attach_(model, plan, gate=thinrnn.Fixed())
        self.gated = attached(model)
        self.gated.freeze_()
        self.settings = settings
        self._made_for: Plan | None = None

    @property
    def lasso(self) -> thinrnn.GroupLasso:
        """The penalty on the model as it is now."""
        plan = self.gated.plan
        if self._made_for is not plan:
            assert self.settings.lasso is not None
            has_own_embedding = any(group.name == "embedding" for group in plan.groups)
            if has_own_embedding and not self.settings.lasso_embedding:
                plan = plan.without("embedding")
            self._lasso = thinrnn.GroupLasso(self.gated.model, plan, weight=self.settings.lasso)
            self._made_for = self.gated.plan
        return self._lasso

    def penalty(self) -> Tensor:
        return self.lasso()

    def update_(self) -> None:
        self.lasso.threshold_(self.settings.lasso_zero)

    @torch.no_grad()
    def close_(self) -> None:
        for name, alive in self.lasso.alive().items():
            if not alive.all():
                gate = self.gated.gates[name]
                gate.log_alpha = gate.estimator.placed(alive, gate.log_alpha)

    def finish_(self) -> None:
        if self.settings.lasso_zero_at_end:
            self.lasso.threshold_(self.settings.lasso_zero_at_end)
            self.close_()


def add_gates(settings: TrainingSettings, model: nn.Module, plan: Plan, steps: int) -> Pruning:
    """Put gates on a dense model; return what closes them in a training of this many steps."""
    if settings.lasso is not None:
        return ByLasso(model, plan, settings)
    kind = thinrnn.ARM if settings.gate == "arm" else thinrnn.HardConcrete
    gate = kind(mean=settings.gate_mean)
    thinrnn.attach_(model, plan, gate=gate, placement=settings.gate_placement)
    if settings.l0 is not None:
        return ByL0(model, weight=settings.l0)
    steps = math.ceil(settings.target_time * steps)
    return ToTarget(make_target(settings, model, steps))


def make_target(settings: TrainingSettings, model: nn.Module, steps: int) -> thinrnn.Target:
    """Return the target of a run, on a model with gates."""
    params, macs = settings.target.get("params"), settings.target.get("macs")
    return thinrnn.Target(model, params=params, macs=macs, steps=steps, score=settings.score)


def weights_of(model: nn.Module, pruning: Pruning) -> dict[str, Any]:
    """Return copies of a model's weights and gates, what is left of it, and its pruning."""
    return {
        "kept": thinrnn.kept_neurons(model) if is_attached(model) else None,
        "tensors": {name: t.detach().clone() for name, t in model.state_dict().items()},
        "penalty": pruning.state_dict(),
    }


def set_weights_(model: nn.Module, pruning: Pruning, saved: dict[str, Any]) -> None:
    """Make a freshly built model what `weights_of` wrote down."""
    if saved["kept"] is not None:
        thinrnn.cut_(model, saved["kept"])
    model.load_state_dict(saved["tensors"])
    if saved["penalty"] is not None:
        pruning.load_state_dict(saved["penalty"])
