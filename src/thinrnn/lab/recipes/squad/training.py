"""One BiDAF in training: everything that a step depends on, and the step itself.

    questions of like length ── batch of one of a few shapes ── model ── loss + penalty

Nothing in a step waits for the device; on a GPU every shape of batch has its own CUDA graph.
"""

from typing import Any

import torch
from torch import Tensor, nn

import thinrnn
from thinrnn._gates.attach import attached
from thinrnn.lab.device.arithmetic import arithmetic
from thinrnn.lab.device.exact import exact_products
from thinrnn.lab.device.graphs import GraphedStep, Step
from thinrnn.lab.models.weights import names_of, set_weights_, weights_of
from thinrnn.lab.recipes.means import Means
from thinrnn.lab.recipes.pruning import Pruning
from thinrnn.lab.recipes.schedule import lr_factor
from thinrnn.lab.recipes.squad.batches import Batches, shuffled, usable
from thinrnn.lab.recipes.squad.evaluate import span_loss
from thinrnn.lab.recipes.squad.model import BiDAF
from thinrnn.lab.recipes.squad.optimizer import MovingAverage
from thinrnn.lab.recipes.squad.prepare import Prepared
from thinrnn.lab.recipes.squad.settings import SquadSettings
from thinrnn.lab.run.errors import InputError
from thinrnn.lab.run.packing import all_finite
from thinrnn.lab.run.random_state import random_state, set_random_state_


class Training:
    """The live state of one phase; `snapshot` and `restore_` write it down and bring it back."""

    def __init__(
        self,
        settings: SquadSettings,
        phase: str,
        model: BiDAF,
        pruning: Pruning,
        data: Prepared,
        batches: Batches,
    ) -> None:
        self.settings, self.phase = settings, phase
        self.model, self.pruning = model, pruning
        self.batches = batches
        self.questions = questions_of(settings, data)
        self.optimizer = make_optimizer(settings, model)
        small = settings.small_dropout
        model.set_dropout_(settings.dropout if phase == "dense" or small is None else small)

        self.step = self.epoch = 0  # an epoch is a round of `eval_every` steps
        self.passes = self.place = 0  # over the questions, and in the present pass
        self.order: list[Tensor] = []
        self.means = Means(batches.device)
        self.lr = 0.0
        self.fold_difference = 0.0  # of the logits, when the gates went into the weights
        self.best: dict[str, Any] | None = None
        self.graphs: dict[tuple[int, ...], Step] = {}

    @property
    def is_over(self) -> bool:
        return self.step >= self.settings.steps and self.epoch >= self.settings.rounds

    @property
    def epoch_is_over(self) -> bool:
        return self.step >= min((self.epoch + 1) * self.settings.eval_every, self.settings.steps)

    @property
    def epochs_done(self) -> float:
        """How many rounds are done, with the part of the current one."""
        return self.step / self.settings.eval_every

    def take_step(self) -> None:
        """Train on the next batch."""
        s = self.settings
        factor = lr_factor(
            s.schedule, step=self.step, steps=s.steps, epoch=self.epoch, warmup=s.warmup
        )
        self.lr = s.lr * factor
        self.optimizer.set_lr(self.lr)
        which = self._next_questions()
        batch = self.batches.take(which, context_step=s.context_step, question_step=s.question_step)
        answer = self.batches.answer[which.to(self.batches.device, non_blocking=True)]
        if self.pruning.step():  # from the host, which no graph can do; gates are drawn no more
            self.graphs.clear()
        inputs = (*batch.inputs, answer)
        self._step_for(inputs)(*inputs)
        self.means.count()
        self.step += 1

    def _next_questions(self) -> Tensor:
        """Return the next batch; the order of a pass depends on the seed and its number alone."""
        if self.place >= len(self.order):
            if self.order:
                self.passes += 1
            self.order, self.place = self._order(), 0
        self.place += 1
        return self.order[self.place - 1]

    def _order(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(1_000_003 * self.settings.seed + self.passes)
        lengths = self.batches.context_lengths
        return shuffled(self.questions, lengths, self.settings.batch, generator)

    def _step_for(self, inputs: tuple[Tensor, ...]) -> Step:
        if not (self.settings.cuda_graphs and inputs[0].is_cuda):
            return self.train_step
        shape = (*inputs[0].shape, *inputs[2].shape)
        if shape not in self.graphs:
            self.graphs[shape] = GraphedStep(self.train_step, *inputs)
        return self.graphs[shape]

    def train_step(self, *inputs: Tensor) -> None:
        """Forward, backward, clip, update; the last input is the answers (B, 2)."""
        *given, answer = inputs
        self.optimizer.zero_grad(set_to_none=True)
        with arithmetic(self.settings.precision, answer.device):
            start, end = self.model(*given)
        loss = span_loss(start, end, answer)
        penalty = loss.new_zeros(()) + self.pruning.penalty()
        (loss + penalty).backward()
        if self.settings.clip:
            nn.utils.clip_grad_norm_(self.optimizer.weights, self.settings.clip, foreach=True)
        self.optimizer.step()
        self.pruning.update_()
        self.means.add(loss, penalty)

    def begin_epoch(self) -> None:
        """Begin the next round."""
        self.epoch += 1
        self.means.begin_round()

    def shrink(self) -> None:
        """Remove closed neurons from the model and from the optimizer's state."""
        self.optimizer.zero_grad(set_to_none=True)
        gated = attached(self.model)
        settles = gated.is_frozen and not gated.is_folded  # the gates go into the weights now
        before = self._logits() if settles else None
        removed = thinrnn.shrink_(self.model, self.optimizer)
        if before is not None:
            self.fold_difference = float((self._logits() - before).abs().max())
        if removed or settles:
            self.graphs.clear()

    @torch.no_grad()
    def _logits(self) -> Tensor:
        """Return what the model says in eval about a few questions."""
        was_training = self.model.training
        self.model.eval()
        with exact_products():
            logits = torch.stack(self.model(*self.batches.take(self.questions[:4]).inputs))
        self.model.train(was_training)
        return logits

    def take_log(self) -> tuple[float, float]:
        """Return mean loss and penalty since the last call; waits for the device."""
        return self.means.since_log()

    def is_finite(self) -> bool:
        """True while losses and weights are numbers; waits for the device."""
        return all_finite([self.means.sums, *self.model.parameters()])

    def snapshot(self) -> dict[str, Any]:
        """Return everything that the next steps depend on."""
        return {
            "model": weights_of(self.model, self.pruning),
            "optimizer": self.optimizer.snapshot(names_of(self.model)),
            "means": self.means.snapshot(),
            "best": self.best,
            "plain": {name: getattr(self, name) for name in _PLAIN},
            "random": random_state(),
        }

    def restore_(self, saved: dict[str, Any]) -> None:
        """Go on from a snapshot; the model is as it was built, not yet cut."""
        set_weights_(self.model, self.pruning, saved["model"])
        self.optimizer.restore_(saved["optimizer"], names_of(self.model))
        self.means.restore_(saved["means"])
        self.best = saved["best"]
        vars(self).update(saved["plain"])
        if self.place:
            self.order = self._order()
        set_random_state_(saved["random"])


_PLAIN = ("step", "epoch", "passes", "place", "fold_difference")


def questions_of(settings: SquadSettings, data: Prepared) -> Tensor:
    """Return the questions to train on, or say that there are too few."""
    found = usable(
        data.train, most_context=settings.most_context, most_question=settings.most_question
    )
    if len(found) < settings.batch:
        raise InputError(
            f"{len(found)} questions are left to train on, fewer than batch={settings.batch}: "
            "raise most_context and most_question, or lower batch."
        )
    return found


def make_optimizer(settings: SquadSettings, model: nn.Module) -> MovingAverage:
    """Return the optimizer of a model, gated or not."""
    named = dict(model.named_parameters())
    return MovingAverage(
        [p for name, p in named.items() if not name.startswith("thinrnn:")],
        [p for name, p in named.items() if name.startswith("thinrnn:")],
        rule=settings.optimizer,
        lr=settings.lr,
        gate_lr=settings.gate_lr,
        weight_decay=settings.weight_decay,
        decay=settings.ema,
    )
