"""One phase of a run: a model in training, and everything that its next step depends on.

    batch ── model ── loss + penalty ── backward ── clip ── optimizer
               ▲  state, where the recipe carries one from batch to batch

Nothing in a step waits for the device: losses are summed there and read when they are logged. On a
GPU every shape of whole batches has its own CUDA graph.
"""

import functools
import os
from pathlib import Path
from typing import Any, Generic

import torch
from torch import Tensor, nn

import thinrnn
from thinrnn._file_formats import PlanFile
from thinrnn._files import read_json
from thinrnn._gates.attach import attached, is_attached
from thinrnn._model.tree import map_tensors, tensors_in
from thinrnn.errors import RunError, TargetError
from thinrnn.lab.device.arithmetic import exact_products
from thinrnn.lab.device.graphs import GraphedStep, Step
from thinrnn.lab.device.processes import ALONE, Processes
from thinrnn.lab.recipes.means import Means
from thinrnn.lab.recipes.optimizer import make_optimizer
from thinrnn.lab.recipes.protocol import D, Inputs, Recipe, S, TrainingBatches
from thinrnn.lab.recipes.pruning import (
    Pruning,
    add_gates,
    make_target,
    set_weights_,
    weights_of,
)
from thinrnn.lab.run import InputError, RunFolder
from thinrnn.lab.run.files import write_atomic
from thinrnn.lab.run.packing import all_finite
from thinrnn.lab.run.random_state import random_state, set_random_state_
from thinrnn.plan import Plan


class Phase(Generic[S, D]):
    """A model in training; `snapshot` and `restore_` write it down and bring it back.

    The model is built here, with gates where a `plan` is given, and starts with the weights of a
    model of the same shape, `given`, if there is one.
    """

    batches: TrainingBatches  # set before the first step

    def __init__(
        self,
        recipe: Recipe[S, D],
        settings: S,
        name: str,
        data: D,
        device: torch.device,
        *,
        plan: Plan | None = None,
        given: nn.Module | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self.processes = processes
        self.recipe, self.settings, self.name = recipe, settings, name
        self.data, self.device, self.plan = data, device, plan
        self.epoch_steps, self.steps = recipe.steps(settings, data, name)
        self.epochs = -(-self.steps // self.epoch_steps)
        self.model = recipe.build(settings, data).to(device)
        if given is not None:
            start_with_(self.model, given)
        self.pruning = Pruning()
        if plan is not None:
            self.pruning = add_gates(settings, self.model, plan, self.steps)
        self.optimizer = make_optimizer(settings, self.model)

        self.step = self.epoch = 0
        self.state: Any = None
        self.lr = 0.0
        self.means = Means(device, processes)
        self.history: list[float] = []  # scores of the epochs with the final size
        self.best: dict[str, Any] | None = None
        self.bad_epochs = 0
        self.stopped = False
        self.fold_difference = 0.0  # of the outputs, when the gates went into the weights
        self.graphs: dict[tuple[torch.Size, ...], Step] = {}
        self.is_warm = False  # no step has run as it is since shapes or kernels changed
        self.set_dropout()
        if processes.rank:  # all have begun alike; from here on their dropout differs
            torch.manual_seed(settings.seed + OTHER_SEED * processes.rank)

    @functools.cached_property
    def caller(self) -> nn.Module:
        """What a training step calls; made in the first one, when the model has its shape."""
        return self.processes.wrapped(self.model)

    @functools.cached_property
    def later(self) -> float:
        """How long the phases after this one take, in steps of this one."""
        names = self.settings.phases
        after = names[names.index(self.name) + 1 :]
        steps = {name: self.recipe.steps(self.settings, self.data, name)[1] for name in after}
        return sum(PHASE_TIMES[name] * steps[name] for name in after) / PHASE_TIMES[self.name]

    @property
    def is_over(self) -> bool:
        return self.stopped or self.epoch >= self.epochs

    @property
    def epoch_is_over(self) -> bool:
        return self.step >= min((self.epoch + 1) * self.epoch_steps, self.steps)

    @property
    def epochs_done(self) -> float:
        """How many epochs are done, with the part of the current one."""
        return self.step / self.epoch_steps

    def take_step(self) -> None:
        """Train on the next batch, or on this process's part of it."""
        whole = self.batches.batch(self.step)
        batch = tuple(self.processes.part(t, self.recipe.batch_dim) for t in whole)
        self.lr = self.settings.lr_at(step=self.step, steps=self.steps, epoch=self.epoch)
        self.optimizer.set_lr(self.lr)
        if self.pruning.step():  # on the host, which no graph can do; gates are drawn no more
            self.graphs.clear()
        self.runner(batch)(*batch)
        self.means.count(len(batch[0]))
        self.step += 1

    def train_step(self, *batch: Tensor) -> None:
        """Forward, backward, clip, update."""
        self.optimizer.zero_grad(set_to_none=True)
        loss, state = self.forward(batch)
        penalty = loss.new_zeros(()) + self.pruning.penalty()
        (loss + penalty).backward()
        if self.settings.clip:
            nn.utils.clip_grad_norm_(self.optimizer.weights, self.settings.clip, foreach=True)
        self.optimizer.step()
        self.pruning.update_()
        self.carry(state)
        self.means.add(loss, penalty, len(batch[0]))

    def forward(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, Any]:
        """Return the loss and the next state."""
        if not self.learns_by_arm:
            return self.recipe.step(self.settings, self.caller, batch, self.state)
        state: Any = None

        def closure() -> Tensor:
            nonlocal state  # that of the second pass counts
            loss, state = self.recipe.step(self.settings, self.model, batch, self.state)
            return loss

        return thinrnn.arm_loss(self.model, closure), state

    @property
    def learns_by_arm(self) -> bool:
        """Whether gates by ARM are still learning, which takes two passes that no graph can do."""
        if not is_attached(self.model):
            return False
        gated = attached(self.model)
        return isinstance(gated.estimator, thinrnn.ARM) and not gated.is_frozen

    def runner(self, batch: tuple[Tensor, ...]) -> Step:
        """Return what trains on a batch: a CUDA graph of its shape, or the step as it is."""
        can_be_graphed = self.settings.cuda_graphs and batch[0].is_cuda and not self.learns_by_arm
        can_be_graphed = can_be_graphed and self.processes.count == 1
        if not can_be_graphed or not self.is_warm or len(batch[0]) != self.batches.rows:
            self.is_warm = True
            return self.train_step
        shapes = tuple(tensor.shape for tensor in batch)
        if shapes not in self.graphs:
            self.graphs[shapes] = GraphedStep(self.train_step, *batch)
        return self.graphs[shapes]

    def carry(self, state: Any) -> None:
        """Take over the state for the next step."""
        if self.state is None:
            self.state = map_tensors(state, lambda t: t.detach().clone())
        else:  # in place: a CUDA graph reads and writes the same tensors each time
            for old, new in zip(tensors_in(self.state), tensors_in(state), strict=True):
                old.copy_(new.detach())

    def changed(self) -> None:
        """Forget what was captured from shapes or kernels that are no longer there."""
        self.graphs.clear()
        self.is_warm = False
        self.state = None

    def begin_epoch(self) -> None:
        """Begin the next epoch, with an empty state and empty sums."""
        self.epoch += 1
        self.means.begin_epoch()
        for tensor in tensors_in(self.state):
            tensor.zero_()
        self.set_dropout()

    def set_dropout(self) -> None:
        """Set the dropout of this epoch, which depends on how far the gates have closed."""
        progress = self.pruning.progress_at(self.epoch * self.epoch_steps)
        if self.recipe.set_dropout_(self.settings, self.model, self.name, progress):
            self.changed()

    def shrink(self) -> None:
        """Remove closed neurons from the model and from the optimizer's state."""
        self.optimizer.zero_grad(set_to_none=True)
        gated = attached(self.model)
        folds = gated.is_frozen and not gated.is_folded  # the gates go into the weights now
        before = self.outputs() if folds else None
        removed = thinrnn.shrink_(self.model, self.optimizer)
        if before is not None:
            self.fold_difference = float((self.outputs() - before).abs().max())
        if removed or folds:
            self.changed()

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """Return the first output in eval for some real inputs."""
        was_training = self.model.training
        self.model.eval()
        with exact_products():
            found: Tensor = self.model(*inputs_on(self.data.example(), self.device))[0]
        self.model.train(was_training)
        return found

    def is_finite(self) -> bool:
        """True while losses and weights are numbers; waits for the device."""
        finite = all_finite([self.means.sums, *self.model.parameters()])
        return not any(self.processes.any(not finite))

    def judge(self, score: float) -> None:
        """Keep the weights if they count; stop, or begin averaging, by a score (less is better).

        On the way to a size scores mean little. With a fixed penalty the last weights count.
        """
        if not self.recipe.keeps_best:
            self.best = weights_of(self.model, self.pruning)
        if not self.recipe.keeps_best or not self.pruning.is_final:
            return
        earlier, self.history = self.history, [*self.history, score]
        if not earlier or score < min(earlier) or not self.pruning.keeps_best:
            self.best, self.bad_epochs = weights_of(self.model, self.pruning), 0
        else:
            self.bad_epochs += 1
            self.stopped = self.settings.stops_after(self.bad_epochs)
        averages = self.settings.averages_from_now(self.epoch, earlier, score)
        if averages and not self.optimizer.averaging:
            self.optimizer.start_averaging()
            self.changed()

    def snapshot(self) -> dict[str, Any]:
        """Return everything that the next steps depend on, in all processes."""
        random, *others = self.processes.gathered(random_state())
        return {
            "model": weights_of(self.model, self.pruning),
            "optimizer": self.optimizer.snapshot(self.names()),
            "state": self.processes.whole(self.state, self.recipe.batch_dim),
            "means": self.means.snapshot(),
            "best": self.best,
            "counters": {name: getattr(self, name) for name in COUNTERS},
            "random": random,
            "other_random": others,
        }

    def restore_(self, saved: dict[str, Any]) -> None:
        """Go on from a snapshot; the model is as it was built, not yet cut.

        A process that the training did not have before draws random numbers of its own.
        """
        set_weights_(self.model, self.pruning, saved["model"])
        self.optimizer.restore_(saved["optimizer"], self.names())
        self.means.restore_(saved["means"])
        self.best = saved["best"]
        vars(self).update(saved["counters"])
        self.set_dropout()
        dim, mine = self.recipe.batch_dim, self.processes.part
        self.state = map_tensors(saved["state"], lambda t: mine(t, dim).to(self.device))
        rank = self.processes.rank
        states = [saved["random"], *saved.get("other_random", [])]
        if rank < len(states):
            set_random_state_(states[rank])
        else:
            torch.manual_seed(self.settings.seed + self.step + OTHER_SEED * rank)

    def names(self) -> dict[Tensor, str]:
        return {p: name for name, p in self.model.named_parameters()}


PLAN = "plan.json"  # in the run folder
PHASE_TIMES = {"dense": 1.0, "gated": 0.8, "control": 0.55}  # of a step, about
OTHER_SEED = 7919  # between the seeds of two processes
COUNTERS = ("step", "epoch", "history", "bad_epochs", "stopped", "fold_difference")


def known_plan(recipe: Recipe[S, D], settings: S, data: D, run: RunFolder) -> Plan:
    """Return the plan of the dense model; finding it may take a while, so the run keeps it."""
    file = run.path / PLAN
    if not os.path.lexists(file):
        model = recipe.build(settings, data)
        write_atomic(file, recipe.find_plan(settings, model).to_json())
    return read_json(file, PlanFile, RunError).plan()


def reachable_plan(recipe: Recipe[S, D], settings: S, data: D) -> Plan:
    """Return the plan of the dense model; refuse a target that no choice of neurons reaches.

    A run calls this before it trains anything: the gated phase comes last but one.
    """
    model = recipe.build(settings, data)
    plan = recipe.find_plan(settings, model)
    if "gated" in settings.phases and settings.target:
        thinrnn.attach_(model, plan)
        try:
            make_target(settings, model, steps=1)
        except TargetError as error:  # it names params or macs, as our settings do behind target_
            raise InputError(f"target_{error}") from None
    return plan


def begin_phase(
    recipe: Recipe[S, D],
    settings: S,
    name: str,
    data: D,
    device: torch.device,
    run: RunFolder,
    processes: Processes = ALONE,
) -> Phase[S, D]:
    """Return a phase of a run at its first step.

    The control has the sizes of the small model. A control without one is that of another run, and
    the settings have its sizes.
    """
    # All this before the model is built, which sets the seed: the same masks in every process.
    plan = given = None
    small = run.summary("small")
    if name == "control" and "gated" in settings.phases and small is not None:
        settings = recipe.resized(settings, small["neurons"])
    if name == "gated":
        plan, folder = known_plan(recipe, settings, data, run), settings.starts_from
        if folder:
            given = recipe.trained(run.path / "dense" if folder == "dense" else Path(folder), data)
    return Phase(recipe, settings, name, data, device, plan=plan, given=given, processes=processes)


def inputs_on(inputs: Inputs, device: torch.device) -> tuple[Tensor, ...]:
    """Return example inputs on a device, as positional arguments."""
    return tuple(x.to(device) for x in (inputs if isinstance(inputs, tuple) else (inputs,)))


def start_with_(model: nn.Module, trained: nn.Module) -> None:
    """Give a new model the weights of a trained one of the same shape."""
    try:
        model.load_state_dict(trained.state_dict())
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(
            f"start_from holds a model of another shape ({reason}): choose the settings of the "
            "model with which it was trained."
        ) from None
