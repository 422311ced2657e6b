"""Pruner: all that a training loop has to do to prune its model, in one object.

loss.backward()      + pruner.penalty() in the loss, for L0
optimizer.step()
pruner.step()        gates: attached after `start_step`, then learned, then closed
...
pruner.end_epoch()   closed neurons leave the model
pruner.finish_()     the model is small and plain
"""

from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from thinrnn._discovery.find import find_groups
from thinrnn._gates.attach import attach_, attached, detach_, gates, is_attached
from thinrnn._penalties.l0 import L0
from thinrnn._penalties.target import Target
from thinrnn._surgery.compact import compact
from thinrnn._surgery.count import count
from thinrnn._surgery.provenance import Record, find_record, set_record_
from thinrnn._surgery.save import save
from thinrnn._surgery.shrink import cut_, kept_neurons, shrink_
from thinrnn._surgery.verify import verify
from thinrnn._training.first_call import FirstCall
from thinrnn._training.state_dict import State, StateDictHooks
from thinrnn.errors import GateError, PlanError, TargetError
from thinrnn.plan import Plan

STEPS_PART = 0.6  # of a training of known length in which the target comes down
LEARNING = 20.0  # gate_lr * steps of a target
GATE_LRS = (0.005, 0.5)  # the least and the most, where nobody says


class Options(TypedDict, total=False):
    """The keyword arguments of a `Pruner`."""

    target: Mapping[str, Any] | None
    l0: float | Mapping[str, float] | None
    gate_lr: float | None
    start_step: int
    start_epoch: int
    plan: Plan | None
    folder: str | Path | None


class Pruner:
    """Prunes a model inside your training loop: finds groups, learns gates, shrinks, finishes.

    The loop calls `step()` after each `optimizer.step()`, `end_epoch()` after each epoch and
    `finish_()` at the end. The model trains as usual up to `start_step` and `start_epoch`; then
    its groups are found, with what it was called with first as the example, and gates are attached.
    Gates have their own optimizer (Adam): your learning-rate schedule and weight decay leave them
    alone.

    Checkpoints need nothing more than the `state_dict` of model and optimizer: the pruner's state
    is part of the model's. To resume, make model, optimizer and pruner as at the start, then load
    first the model, which gets its gates and its size, then the optimizer.

    Args:
        model: The model to prune, without gates; the module whose call is the forward pass.
        optimizer: The optimizer of its weights, or several. Their state is cut with the model.
        target: What to end with: the keyword arguments of `Target`, such as
            `{"params": 0.1, "steps": 2000}`; the steps count from where gates are attached.
        l0: Instead of a target the `weight` of `L0`. Add `penalty()` to the loss.
        gate_lr: Learning rate of the gates. By default 20 over the steps of the target, between
            0.005 and 0.5; with `l0` 0.01.
        start_step: Attach gates after this many steps, 1 or more.
        start_epoch: Attach gates after this many epochs.
        plan: The groups to prune, from `find_groups`. By default all that are found.
        folder: Where `save` writes the model of each of several sizes, as in `folder/0.5`.

    Attributes:
        model: The model.
        target: Its `Target`, once gates are attached.
        steps_done: Calls of `step()` so far.
        epochs_done: Calls of `end_epoch()` so far.
        is_final: Whether the selection of neurons is final.

    Raises:
        TargetError: Neither target nor l0 is given, or both, or no gates can learn.

    Example:
        >>> model = nn.Sequential(nn.Embedding(50, 16), nn.LSTM(16, 32))
        >>> optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        >>> pruner = thinrnn.Pruner(model, optimizer, target={"params": 0.7, "steps": 30})
        >>> for _ in range(4):
        ...     for _ in range(10):
        ...         loss = model(torch.randint(50, (10, 4)))[0].square().mean()
        ...         loss.backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
        ...         pruner.step()
        ...     removed = pruner.end_epoch()
        >>> pruner.finish_() < 1e-5
        True
        >>> sum(p.numel() for p in model.parameters()) <= 0.7 * 7200
        True
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Sequence[Optimizer] = (),
        *,
        target: Mapping[str, Any] | None = None,
        l0: float | Mapping[str, float] | None = None,
        gate_lr: float | None = None,
        start_step: int = 1,
        start_epoch: int = 0,
        plan: Plan | None = None,
        folder: str | Path | None = None,
    ) -> None:
        if (target is None) == (l0 is None):
            raise TargetError(
                "give one of target and l0, as in target={'params': 0.1, 'steps': 2000} or l0=1e-7."
            )
        known = [name for name in signature(Target).parameters if name != "model"]
        if unknown := sorted(set(target or ()) - set(known)):
            raise TargetError(f"target has no '{unknown[0]}': it takes {', '.join(known)}.")
        if is_attached(model):
            raise GateError("the model has gates already; Pruner attaches its own: detach_(model).")
        self.model = model
        self.wanted = {} if target is None else dict(target)
        self.l0_weight = l0
        self.gate_lr = gate_lr
        self.start_step, self.start_epoch = start_step, start_epoch
        self.plan = plan
        self.folder = None if folder is None else Path(folder)
        self.total_steps: int | None = None  # of the training, where a trainer knows it
        self.steps_done = self.epochs_done = 0
        self.target: Target | None = None
        self.l0: L0 | None = None
        self.gate_optimizer: Optimizer | None = None
        self._optimizers: Sequence[Optimizer] = ()
        self._first_call = FirstCall(model)
        self._state_hooks = StateDictHooks(model, self)
        if optimizer:
            self.use_optimizer_(optimizer)

    @property
    def is_attached(self) -> bool:
        """Whether the model has its gates now."""
        return is_attached(self.model)

    @property
    def is_final(self) -> bool:
        """Whether the selection of neurons is final."""
        return self.target is not None and self.target.is_settled

    @property
    def rate(self) -> float:
        """What to multiply the learning rate by: `Target.rate`, for several sizes with a finish."""
        return 1.0 if self.target is None else self.target.rate

    def penalty(self) -> Tensor | float:
        """Return what is added to the loss: with `l0` the penalty, otherwise 0."""
        return 0.0 if self.l0 is None else self.l0()

    def add_penalty_(self) -> None:
        """Add the penalty's gradient to the gates, where a trainer builds the loss by itself.

        Call it between backward and `step()`, once, instead of adding `penalty()` to the loss.
        """
        if self.l0 is None:
            return
        own = [gate.log_alpha for gate in gates(self.model).values()]
        for log_alpha, grad in zip(own, torch.autograd.grad(self.l0(), own), strict=True):
            log_alpha.grad = grad if log_alpha.grad is None else log_alpha.grad + grad

    def step(self) -> None:
        """Count a training step: attach gates, let them learn, close those over the limit.

        Raises:
            PlanError: It is time to attach gates, and the model was not called yet.
        """
        self.steps_done += 1
        if not self.is_attached:
            self._attach_in_time()
            return
        assert self.gate_optimizer is not None
        if not self.is_final:
            self.gate_optimizer.step()
        self.gate_optimizer.zero_grad()
        if self.target is not None:
            self.target.step()
            if self.target.reached and self.folder and not _rank():
                save(compact(self.model), self.folder / str(self.target.reached))

    def end_epoch(self) -> int:
        """Count an epoch and remove closed neurons; a state carried along must begin anew.

        Returns:
            How many neurons were removed.
        """
        self.epochs_done += 1
        if not self.is_attached:
            self._attach_in_time()
            return 0
        return self._shrink()

    def numbers(self) -> dict[str, int]:
        """Return what there is to log: parameters, and the neurons that are kept in each group."""
        if not self.is_attached:
            return {"params": count(self.model).params}
        kept = {f"kept/{name}": int(g.keep.sum()) for name, g in gates(self.model).items()}
        return {"params": count(self.model).params, **kept}

    def finish_(self) -> float:
        """Make the model small and plain, in place, and check that its outputs stayed the same.

        A target that has not settled applies its final limit at once. The model is then what
        `compact` returns: no gates, ready for `save` and `export_onnx`.

        Returns:
            The largest difference between the outputs of the gated and of the small model in eval.

        Raises:
            GateError: The model has no gates.
            VerifyError: The outputs differ.
        """
        model, gated = self.model, attached(self.model)
        self._first_call.stop()
        self._state_hooks.stop()
        difference = 0.0
        if self._first_call.example is not None:
            small = compact(model, target=self.target)
            difference = verify(model, small, self._first_call.example, target=self.target)
        if self.target is not None:
            for name, final in self.target.final_log_alpha().items():
                gated.gates[name].log_alpha = final
        gated.freeze_()
        self._shrink()
        set_record_(model, Record(gated.first_plan, kept_neurons(model), before=find_record(model)))
        detach_(model)
        return difference

    def use_optimizer_(self, optimizer: Optimizer | Sequence[Optimizer]) -> None:
        """Take the optimizer of the weights, for trainers that make it after the pruner.

        Gates that it got hold of, because the model had them already, are taken out again.
        """
        self._optimizers = (optimizer,) if isinstance(optimizer, Optimizer) else optimizer
        if not self.is_attached:
            return
        gated = attached(self.model)
        own = {id(gate.log_alpha) for gate in gated.gates.values()}
        for one in self._optimizers:
            for group in one.param_groups:
                group["params"] = [p for p in group["params"] if id(p) not in own]
        if not gated.is_frozen:
            gated.changes += 1
            for gate in gated.gates.values():
                gate.log_alpha.requires_grad_(True)

    def snapshot(self) -> State:
        """Return everything that the next steps depend on; the model's `state_dict` holds it."""
        about: dict[str, Any] = {"steps_done": self.steps_done, "epochs_done": self.epochs_done}
        tensors: dict[str, Tensor] = {}
        if self.is_attached:
            assert self.gate_optimizer is not None
            about["plan"] = attached(self.model).first_plan.to_json()
            about["kept"] = kept_neurons(self.model)
            for i, state in self.gate_optimizer.state_dict()["state"].items():
                tensors |= {f"optimizer/{i}/{name}": value for name, value in state.items()}
        if self.target is not None:
            about["target_steps"] = [self.target.steps, self.target.finish]
            about["target_step"] = self.target.state_dict()["step"]
            worth = self.target.state_dict()["worth"]
            tensors |= {f"worth/{name}": row for name, row in worth.items()}
        return about, tensors

    def restore_(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on from a snapshot; the model's `load_state_dict` calls it before weights are loaded.

        Raises:
            PlanError: The model has gates of its own by now.
        """
        self.steps_done, self.epochs_done = about["steps_done"], about["epochs_done"]
        if "plan" not in about:
            return
        if not self.is_attached:
            self._attach(Plan.from_json(about["plan"]), about.get("target_steps"))
        cut_(self.model, about["kept"], self._all_optimizers())
        assert self.gate_optimizer is not None
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            what, *rest = key.split("/", 2)
            if what == "optimizer":
                moments.setdefault(int(rest[0]), {})[rest[1]] = value
        groups = self.gate_optimizer.state_dict()["param_groups"]
        self.gate_optimizer.load_state_dict({"state": moments, "param_groups": groups})
        if self.target is not None:
            worth = {k.removeprefix("worth/"): t for k, t in tensors.items() if k[:6] == "worth/"}
            self.target.load_state_dict({"step": about["target_step"], "worth": worth})
        if not self._optimizers:  # the trainer makes it next, and takes all that learns
            for gate in attached(self.model).gates.values():
                gate.log_alpha.requires_grad_(False)

    def _attach_in_time(self) -> None:
        if self.steps_done < self.start_step or self.epochs_done < self.start_epoch:
            return
        plan = self.plan
        if plan is None:
            if self._first_call.example is None:
                raise PlanError(
                    f"{type(self.model).__name__} was not called in {self.steps_done} training "
                    "steps, so there is no example to find its groups with: prune the module that "
                    "the training step calls, or give plan=find_groups(model, example)."
                )
            plan = find_groups(self.model, self._first_call.example)
        self._attach(plan, None)

    def _attach(self, plan: Plan, steps: Sequence[int] | None) -> None:
        attach_(self.model, plan)
        if self.l0_weight is None:
            known = dict(zip(("steps", "finish"), steps or (), strict=False))
            self.target = Target(self.model, **self._steps_left() | self.wanted | known)
        else:
            self.l0 = L0(self.model, weight=self.l0_weight)
        own = [gate.log_alpha for gate in attached(self.model).gates.values()]
        self.gate_optimizer = torch.optim.Adam(own, lr=self._gate_lr())

    def _steps_left(self) -> dict[str, int]:
        """Return the steps of the target where the trainer knows how long it trains."""
        if self.total_steps is None or "steps" in self.wanted:
            return {}
        sizes = [self.wanted.get(what) for what in ("params", "macs")]
        count = max(len(s) if isinstance(s, Sequence) else 1 for s in sizes)
        each = max(1, (self.total_steps - self.steps_done) // count)
        steps = max(1, round(STEPS_PART * each))
        return {"steps": steps} | ({"finish": each - steps} if count > 1 else {})

    def _gate_lr(self) -> float:
        if self.gate_lr is not None:
            return self.gate_lr
        if self.target is None:
            return 0.01
        least, most = GATE_LRS
        return min(max(LEARNING / self.target.steps, least), most)

    def _all_optimizers(self) -> list[Optimizer]:
        own = [] if self.gate_optimizer is None else [self.gate_optimizer]
        return [*self._optimizers, *own]

    def _shrink(self) -> int:
        for optimizer in self._all_optimizers():
            optimizer.zero_grad()
        return shrink_(self.model, self._all_optimizers())

    def __deepcopy__(self, memo: dict[int, Any]) -> "Pruner":
        return self  # a copy of the model has no pruner


def _rank() -> int:
    return distributed.get_rank() if distributed.is_initialized() else 0
