"""One model in training: everything that a step depends on, and the step itself.

    streams (L, B) ── window (T, B) ── model ── cross entropy + penalty ── clip ── optimizer
                                         ▲  state, carried from window to window

Nothing in a step waits for the device: losses are summed there and read when they are logged.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thinrnn
from thinrnn._gates.attach import attached
from thinrnn._model.tree import map_tensors, tensors_in
from thinrnn.lab.device.arithmetic import arithmetic
from thinrnn.lab.device.exact import exact_products
from thinrnn.lab.device.graphs import GraphedStep, Step
from thinrnn.lab.device.padded import Padded
from thinrnn.lab.models.weights import names_of, set_weights_, weights_of
from thinrnn.lab.recipes.language_model.model import LanguageModel
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.language_model.teacher import SoftTargets, distilled_loss
from thinrnn.lab.recipes.optimizer import WeightsAndGates
from thinrnn.lab.recipes.pruning import Pruning
from thinrnn.lab.recipes.schedule import lr_factor
from thinrnn.lab.run.packing import all_finite
from thinrnn.lab.run.random_state import random_state, set_random_state_


class Training:
    """The live state of one phase; `snapshot` and `restore_` write it down and bring it back."""

    def __init__(
        self,
        settings: LanguageModelSettings,
        phase: str,
        model: LanguageModel,
        pruning: Pruning,
        streams: Tensor,
    ) -> None:
        self.settings = settings
        self.phase = phase
        self.model = model
        self.dropouts = model.dropouts  # of the dense model
        self.pruning = pruning
        self.streams = streams  # (L, B) int32
        self.soft: SoftTargets | None = None
        self.optimizer = make_optimizer(settings, model)
        self.bptt = min(settings.bptt, len(streams) - 1)
        self.epoch_steps = math.ceil((len(streams) - 1) / self.bptt)
        self.epochs = settings.passes(phase)

        self.epoch = 0
        self.step = 0
        self.place = 0  # row of the streams where the next window begins
        self.state: Any = None
        # Sums of loss and penalty over the rows since the epoch began, and since the last log.
        self.epoch_sums = torch.zeros(2, device=streams.device)
        self.log_sums = torch.zeros(2, device=streams.device)
        self.log_place = 0
        self.lr = 0.0
        self.history: list[float] = []  # validation losses that count for the averaging rule
        self.best: dict[str, Any] | None = None
        self.bad_epochs = 0
        self.fold_difference = 0.0  # of the outputs, when the gates went into the weights
        self.stopped = False
        self.run_step: Step = self.train_step
        self.set_dropout()

    @property
    def epoch_is_over(self) -> bool:
        return self.place >= len(self.streams) - 1

    @property
    def is_over(self) -> bool:
        return self.stopped or self.epoch >= self.epochs

    @property
    def epochs_done(self) -> float:
        """How many epochs are done, with the part of the current one."""
        return self.epoch + self.place / (len(self.streams) - 1)

    def take_step(self) -> None:
        """Train on the next window."""
        s = self.settings
        self.lr = s.lr * lr_factor(
            s.schedule,
            step=self.step,
            steps=self.epochs * self.epoch_steps,
            epoch=self.epoch,
            warmup=s.warmup,
            decay=s.lr_decay,
            decay_from=s.decay_from,
            decay_every=s.decay_every,
        )
        self.optimizer.set_lr(self.lr)
        end = min(self.place + self.bptt, len(self.streams) - 1)
        x = self.streams[self.place : end].long()
        y = self.streams[self.place + 1 : end + 1].long()
        soft = () if self.soft is None else self.soft.between(self.place, end)
        if self.step_can_be_graphed and self.run_step == self.train_step and self.state is not None:
            self.run_step = GraphedStep(self.train_step, x, y, *soft)
        if self.pruning.step():  # from the host, which no graph can do; gates are drawn no more
            self.run_step = self.train_step
        self.run_step(x, y, *soft)
        self.place = end
        self.step += 1

    @property
    def step_can_be_graphed(self) -> bool:
        return self.settings.cuda_graphs and self.streams.is_cuda

    def train_step(self, x: Tensor, y: Tensor, *soft: Tensor) -> None:
        """Forward, backward, clip, update; x and y are (T, B), soft targets (T, B, TOP)."""
        self.optimizer.zero_grad(set_to_none=True)
        with arithmetic(self.settings.precision, x.device), Padded():
            logits, state = self.model(x, self.state)
            loss = self.loss(logits, y, *soft)
        penalty = loss.new_zeros(()) + self.pruning.penalty()
        (loss + penalty).backward()
        if self.settings.clip:
            nn.utils.clip_grad_norm_(self.optimizer.weights, self.settings.clip, foreach=True)
        self.optimizer.step()
        self.pruning.update_()
        self._carry(state)
        sums = torch.stack([loss.detach().float(), penalty.detach().float()]) * len(x)
        self.epoch_sums += sums
        self.log_sums += sums

    def loss(self, logits: Tensor, y: Tensor, *soft: Tensor) -> Tensor:
        if soft:
            return distilled_loss(logits, y, (soft[0], soft[1]), self.settings.distill)
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())

    def _carry(self, state: Any) -> None:
        if self.state is None:
            self.state = map_tensors(state, lambda t: t.detach().clone())
        else:  # in place: a CUDA graph reads and writes the same tensors each time
            for old, new in zip(tensors_in(self.state), tensors_in(state), strict=True):
                old.copy_(new.detach())

    def begin_epoch(self) -> None:
        """Go back to the beginning of the text, with empty sums and state."""
        self.epoch += 1
        self.place = self.log_place = 0
        self.epoch_sums.zero_()
        self.log_sums.zero_()
        if isinstance(self.run_step, GraphedStep):
            for tensor in tensors_in(self.state):
                tensor.zero_()
        else:
            self.state = None
        self.set_dropout()

    def set_dropout(self) -> None:
        """Drop what this epoch asks for: less and less while a target closes gates."""
        s = self.settings
        small = 1.0 if s.small_dropout is None else s.small_dropout / max(s.dropout, 1e-9)
        done = self.pruning.progress_at(self.epoch * self.epoch_steps)
        part = 0.0 if self.phase == "dense" else done
        wanted = self.dropouts.scaled(1 + (small - 1) * part)
        if wanted != self.model.dropouts:
            self.model.set_dropouts(wanted)
            self.changed()

    def changed(self) -> None:
        """Shapes or kernels are new: forget what was captured from the old ones."""
        self.run_step = self.train_step
        self.state = None

    def shrink(self) -> None:
        """Remove closed neurons from the model and from the optimizer's state."""
        self.optimizer.zero_grad(set_to_none=True)
        gated = attached(self.model)
        settles = gated.is_frozen and not gated.is_folded  # the gates go into the weights now
        before = self._outputs() if settles else None
        removed = thinrnn.shrink_(self.model, self.optimizer)
        if before is not None:
            self.fold_difference = float((self._outputs() - before).abs().max())
        if removed or settles:
            self.changed()

    @torch.no_grad()
    def _outputs(self) -> Tensor:
        """Return the logits in eval for the beginning of two streams."""
        self.model.eval()
        with exact_products():
            logits: Tensor = self.model(self.streams[:35, :2].long())[0]
        self.model.train()
        return logits

    def take_log(self) -> tuple[float, float]:
        """Return mean loss and penalty since the last call; waits for the device."""
        loss, penalty = (self.log_sums / max(1, self.place - self.log_place)).tolist()
        self.log_sums.zero_()
        self.log_place = self.place
        return loss, penalty

    def epoch_means(self) -> tuple[float, float]:
        """Return mean loss and penalty since the epoch began; waits for the device."""
        loss, penalty = (self.epoch_sums / max(1, self.place)).tolist()
        return loss, penalty

    def is_finite(self) -> bool:
        """True while losses and weights are numbers; waits for the device."""
        return all_finite([self.epoch_sums, *self.model.parameters()])

    def snapshot(self) -> dict[str, Any]:
        """Return everything that the next steps depend on."""
        return {
            "model": weights_of(self.model, self.pruning),
            "optimizer": self.optimizer.snapshot(names_of(self.model)),
            "state": self.state,
            "epoch_sums": self.epoch_sums,
            "log_sums": self.log_sums,
            "best": self.best,
            "random": random_state(),
            **{name: getattr(self, name) for name in _PLAIN},
        }

    def restore_(self, saved: dict[str, Any]) -> None:
        """Go on from a snapshot; the model is as it was built, not yet cut."""
        device = self.streams.device
        set_weights_(self.model, self.pruning, saved["model"])
        self.optimizer.restore_(saved["optimizer"], names_of(self.model))
        self.epoch_sums.copy_(saved["epoch_sums"])
        self.log_sums.copy_(saved["log_sums"])
        self.best = saved["best"]
        for name in _PLAIN:
            setattr(self, name, saved[name])
        self.set_dropout()
        self.state = map_tensors(saved["state"], lambda t: t.to(device))
        set_random_state_(saved["random"])


_PLAIN = (
    *("epoch", "step", "place", "log_place", "history", "bad_epochs", "stopped"),
    "fold_difference",
)


def make_optimizer(settings: LanguageModelSettings, model: nn.Module) -> WeightsAndGates:
    """Return the optimizer of a model, gated or not."""
    named = dict(model.named_parameters())
    gates = [p for name, p in named.items() if name.startswith("thinrnn:")]
    weights = [p for name, p in named.items() if not name.startswith("thinrnn:")]
    return WeightsAndGates(
        weights,
        gates,
        rule="adam" if settings.optimizer == "adam" else "sgd",
        lr=settings.lr,
        gate_lr=settings.gate_lr,
        weight_decay=settings.weight_decay,
    )
