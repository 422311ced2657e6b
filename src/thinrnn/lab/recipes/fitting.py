"""The loop around a training, whatever is learned: steps, rounds, checkpoints, metrics."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from torch import nn

import thinrnn
from thinrnn.lab.command import command
from thinrnn.lab.recipes.pruning import Pruning
from thinrnn.lab.run import DivergedError, InterruptedRunError, RunFolder
from thinrnn.lab.run.metrics import Metrics
from thinrnn.lab.run.progress import Progress
from thinrnn.lab.run.stop import StopRequest


class Learning(Protocol):
    """One phase of a run in training: what the loop asks of it."""

    settings: Any
    phase: str
    pruning: Pruning
    epoch: int
    step: int
    lr: float

    @property
    def model(self) -> nn.Module: ...

    @property
    def is_over(self) -> bool: ...

    @property
    def epoch_is_over(self) -> bool: ...

    @property
    def epochs_done(self) -> float: ...

    def take_step(self) -> None: ...

    def take_log(self) -> tuple[float, float]: ...

    def is_finite(self) -> bool: ...

    def snapshot(self) -> dict[str, Any]: ...

    def restore_(self, saved: dict[str, Any]) -> None: ...


T = TypeVar("T", bound=Learning)


class Loop(ABC, Generic[T]):
    """Trains one phase from wherever it stands; `finish` returns when the phase is over."""

    training: T

    def __init__(
        self,
        run: RunFolder,
        metrics: Metrics,
        progress: Progress,
        watch: Callable[[dict[str, Any]], None],
    ) -> None:
        self.run, self.metrics, self.progress = run, metrics, progress
        self.watch = watch  # is told every event, for the report and TensorBoard
        self.seconds_before = 0.0
        self.began = self.saved = time.monotonic()
        self.is_saved = False  # nothing has happened since the last checkpoint

    @property
    @abstractmethod
    def total(self) -> int:
        """How many steps the phase has."""

    @abstractmethod
    def end_epoch(self) -> None:
        """Validate, decide what follows from it, write it down, begin the next round."""

    @abstractmethod
    def shown(self, loss: float) -> dict[str, str]:
        """Return what to show beside the progress."""

    usual_clip = 0.25  # a gradient norm to try where there was no limit

    def tries(self) -> list[str]:
        """Return settings that may help when the loss is no longer a number."""
        t, s = self.training, self.training.settings
        clip = s.clip / 2 if s.clip else self.usual_clip
        tries = [f"lr={s.lr / 2:g}", f"clip={clip:g}"]
        if t.pruning.is_on:
            tries.append(f"gate_lr={s.gate_lr / 2:g}")
        if s.precision != "float32" and next(t.model.parameters()).is_cuda:
            tries.append("precision=float32")
        return tries

    @property
    def seconds(self) -> float:
        """Seconds spent on this phase, in earlier processes too."""
        return self.seconds_before + time.monotonic() - self.began

    def resume(self) -> None:
        """Go back to the last whole checkpoint, if there is one, and say so."""
        saved, notes = self.run.checkpoints.latest(self.training.phase)
        for note in notes:
            self.progress.line(note)
        if saved is not None:
            self.training.restore_(saved["training"])
            self.metrics.cut(saved["metrics"])
            self.seconds_before = saved["seconds"]
            self.is_saved = True
            self.progress.line(
                f"going on with {self.training.phase} at epoch {self.training.epochs_done:.2f}, "
                f"step {self.training.step}"
            )
        else:
            self.metrics.cut_from("phase", self.training.phase)

    def finish(self, stop: StopRequest) -> None:
        """Train until the phase is over."""
        t, s = self.training, self.training.settings
        self.progress.start(t.phase, self.total, t.step)
        if t.step == 0:
            self.save()
        while not t.is_over:
            t.model.train()
            while not t.epoch_is_over:
                t.take_step()
                self.is_saved = False
                if t.step % s.log_every == 0:
                    self.log_step()
                if self.is_due():
                    self.save()
                if stop.requested:
                    self.save()
                    raise InterruptedRunError(
                        f"stopped at step {t.step} of {self.total} of {t.phase}, checkpoint "
                        f"written; go on with '{command('train', '--resume', self.run.path)}'"
                    )
            self.end_epoch()
            self.is_saved = False
        if not self.is_saved:
            self.save()

    def is_due(self) -> bool:
        s = self.training.settings
        by_steps = s.checkpoint_steps and self.training.step % s.checkpoint_steps == 0
        return bool(by_steps) or time.monotonic() - self.saved >= s.checkpoint_seconds

    def save(self) -> None:
        """Write a checkpoint, unless the training has diverged."""
        t = self.training
        if not t.is_finite():
            self.diverged()
        self.run.checkpoints.save(
            t.phase,
            {
                "training": t.snapshot(),
                "metrics": self.metrics.position(),
                "seconds": self.seconds,
            },
        )
        self.saved = time.monotonic()
        self.is_saved = True

    def diverged(self) -> None:
        t, tries = self.training, self.tries()
        there = self.run.checkpoints.of(t.phase)
        kept = f"the last good checkpoint, {there[-1]}, is kept" if there else "no checkpoint yet"
        raise DivergedError(
            f"the loss of {t.phase} is no longer a number at step {t.step}; {kept}. "
            f"Try one of {', '.join(tries)}: "
            f"'{command('train', '--resume', self.run.path, '--set', tries[0])}'"
        )

    def log_step(self) -> None:
        t = self.training
        loss, penalty = t.take_log()
        if not math.isfinite(loss + penalty):
            self.diverged()
        self.tell(
            {
                "event": "step",
                "phase": t.phase,
                "step": t.step,
                "epoch": round(t.epochs_done, 4),
                "loss": loss,
                "penalty": penalty,
                "lr": t.lr,
                "seconds": round(self.seconds, 3),
            }
        )
        shown = self.shown(loss)
        if t.pruning.is_on:
            kept = [int(gate.keep.sum()) for gate in thinrnn.gates(t.model).values()]
            shown["kept"] = "-".join(map(str, kept))
        self.progress.step(t.step, **shown)

    def tell_epoch(
        self, losses: dict[str, float], gates: dict[str, Any], *, params: int, target: int | None
    ) -> None:
        """Write down the end of a round, with what was measured and what the gates are."""
        t = self.training
        self.tell(
            {
                "event": "epoch",
                "phase": t.phase,
                "epoch": t.epoch + 1,
                "step": t.step,
                **losses,
                **gates,
                "params": params,
                "target": target,
                "seconds": round(self.seconds, 3),
            }
        )

    def tell(self, event: dict[str, Any]) -> None:
        self.metrics.write(event)
        self.watch(event)
