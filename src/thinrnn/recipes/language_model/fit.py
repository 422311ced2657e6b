"""Train one phase from wherever it stands to its end: steps, epochs, checkpoints, metrics."""

import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

import thinrnn
from thinrnn.recipes.language_model.corpus import Text
from thinrnn.recipes.language_model.data import EOS
from thinrnn.recipes.language_model.evaluate import mean_loss, perplexity
from thinrnn.recipes.language_model.gate_log import gate_state, params_kept, params_wanted
from thinrnn.recipes.language_model.iss import Lasso
from thinrnn.recipes.language_model.rules import apply_rules, judge
from thinrnn.recipes.language_model.training import Training, weights_of
from thinrnn.run import DivergedError, InterruptedRunError, RunFolder
from thinrnn.run.metrics import Metrics
from thinrnn.run.progress import Progress
from thinrnn.run.stop import StopRequest


class Fitting:
    """The loop around a `Training`; `finish` returns when the phase is over."""

    def __init__(
        self,
        training: Training,
        text: Text,
        run: RunFolder,
        metrics: Metrics,
        progress: Progress,
        watch: Callable[[dict[str, Any]], None],
    ) -> None:
        self.training, self.text, self.run = training, text, run
        self.metrics, self.progress = metrics, progress
        self.watch = watch  # is told every event, for the report and TensorBoard
        self.seconds_before = 0.0
        self.began = self.saved = time.monotonic()
        self.is_saved = False  # nothing has happened since the last checkpoint

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
        total = s.epochs * t.epoch_steps
        self.progress.start(t.phase, total, t.step)
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
                        f"stopped at step {t.step} of {total} of {t.phase}, checkpoint written; "
                        f"go on with 'thinrnn train --resume {self.run.path}'"
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
        t, s = self.training, self.training.settings
        there = self.run.checkpoints.of(t.phase)
        kept = f"the last good checkpoint, {there[-1]}, is kept" if there else "no checkpoint yet"
        tries = [f"lr={s.lr / 2:g}"]
        tries.append(f"clip={s.clip / 2:g}" if s.clip else "clip=0.25")
        if t.penalty is not None:
            tries.append(f"gate_lr={s.gate_lr / 2:g}")
        if s.precision != "float32" and t.streams.is_cuda:
            tries.append("precision=float32")
        raise DivergedError(
            f"the loss of {t.phase} is no longer a number at step {t.step}; {kept}. "
            f"Try one of {', '.join(tries)}: "
            f"'thinrnn train --resume {self.run.path} --set {tries[0]}'"
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
        shown = {"epoch": f"{t.epochs_done:.1f}", "loss": f"{loss:.3f}"}
        shown["ppl"] = f"{perplexity(loss):.1f}"
        if t.penalty is not None:
            with self.present():
                kept = [int(gate.keep.sum()) for gate in thinrnn.gates(t.model).values()]
            shown["kept"] = "-".join(map(str, kept))
        self.progress.step(t.step, **shown)

    def end_epoch(self) -> None:
        """Validate, decide what follows from it, remove closed neurons, write it down."""
        t, s = self.training, self.training.settings
        train_loss, penalty = t.epoch_means()
        if not t.is_finite():
            self.diverged()
        if isinstance(t.penalty, Lasso):
            t.penalty.close_()
        with t.optimizer.averaged(), self.present():
            valid_loss = self.valid_loss()
            if judge(t, valid_loss):
                t.best = {**weights_of(t.model, t.penalty), "loss": valid_loss}
        if apply_rules(t, valid_loss):
            self.progress.line(f"{t.phase}: averaging begins after epoch {t.epoch + 1}")
        with self.present():
            gates, params = gate_state(t.model), params_kept(t.model)
        if t.penalty is not None and s.shrink:
            t.shrink()
        self.tell(
            {
                "event": "epoch",
                "phase": t.phase,
                "epoch": t.epoch + 1,
                "step": t.step,
                "train_loss": train_loss,
                "valid_loss": valid_loss,
                "valid_perplexity": perplexity(valid_loss),
                "penalty": penalty,
                **gates,
                "params": params,
                "target": params_wanted(t.penalty),
                "seconds": round(self.seconds, 3),
            }
        )
        sizes = f"  kept {'-'.join(map(str, gates['kept'].values()))}" if gates["kept"] else ""
        self.progress.line(
            f"{t.phase:<8} epoch {t.epoch + 1:>3}/{s.epochs}  train {train_loss:.3f}  "
            f"valid {valid_loss:.3f}  perplexity {perplexity(valid_loss):.2f}{sizes}"
        )
        t.begin_epoch()

    def present(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which eval uses the gates that are open now, fit they or not."""
        penalty = self.training.penalty
        if isinstance(penalty, thinrnn.Target):
            return penalty.at_present()
        return contextlib.nullcontext()

    def valid_loss(self) -> float:
        start = self.text.vocabulary.number(EOS)
        return mean_loss(
            self.training.model,
            self.text.valid,
            batch=self.training.settings.eval_batch,
            start=start,
        )

    def tell(self, event: dict[str, Any]) -> None:
        self.metrics.write(event)
        self.watch(event)
