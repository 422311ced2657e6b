"""The training loop of all recipes: one phase of a run, from its last checkpoint to its end."""

import math
import time
from collections.abc import Callable
from typing import Any, Generic

import thinrnn
from thinrnn.lab.command import command
from thinrnn.lab.recipes.gate_log import gate_state, params_kept
from thinrnn.lab.recipes.phase import Phase
from thinrnn.lab.recipes.protocol import D, S
from thinrnn.lab.run import DivergedError, InterruptedRunError, RunFolder
from thinrnn.lab.run.checkpoint import fitting
from thinrnn.lab.run.metrics import MetricsFile
from thinrnn.lab.run.monitor import Monitor
from thinrnn.lab.run.progress import Progress, time_left
from thinrnn.lab.run.stop import StopRequest
from thinrnn.lab.verdicts import has_learned_nothing

Watch = Callable[[dict[str, Any]], None]  # gets every event of metrics.jsonl; may raise


def unwatched(event: dict[str, Any]) -> None:
    """Let a run go on, whatever happens in it."""


class Trainer(Generic[S, D]):
    """Trains one phase, from its last checkpoint if there is one, to its end."""

    def __init__(
        self,
        phase: Phase[S, D],
        run: RunFolder,
        metrics: MetricsFile,
        monitor: Monitor,
        progress: Progress,
        watch: Watch = unwatched,
    ) -> None:
        self.phase, self.run, self.metrics = phase, run, metrics
        self.monitor, self.progress, self.watch = monitor, progress, watch
        self.seconds_before = 0.0
        self.began = self.saved = time.monotonic()
        self.first = 0  # step at which this process began
        self.is_saved = False  # nothing has happened since the last checkpoint
        self.has_warned = False  # that the model is not learning

    def train(self, stop: StopRequest) -> None:
        """Train until the phase is over."""
        p = self.phase
        self.progress.start(p.name, p.steps, p.step, p.later)
        if p.step == 0:
            self.save()
        while not p.is_over:
            p.model.train()
            while not p.epoch_is_over:
                p.take_step()  # learning rate, gates, forward, backward, clip, update
                self.is_saved = False
                self.log_step()
                self.save_if_due(stop)
            self.end_epoch()  # validate, keep the best weights, log
        if not self.is_saved:
            self.save()

    def end_epoch(self) -> None:
        """Validate, keep the weights if they are the best, remove closed neurons, log."""
        p = self.phase
        train_loss, penalty = p.means.of_epoch()
        if not p.is_finite():
            self.diverged()
        p.pruning.close_()
        with p.optimizer.averaged():
            if p.epoch + 1 == p.epochs:
                p.pruning.finish_()
            metrics = p.processes.of_first(lambda: p.recipe.evaluate(p.settings, p.model, p.data))
            p.judge(metrics[0].value if metrics[0].better == "lower" else -metrics[0].value)
        gates, params = gate_state(p.model), params_kept(p.model)
        if p.pruning.is_on and p.settings.shrink:
            p.shrink()
        self.write(
            {
                "event": "epoch",
                "epoch": p.epoch + 1,
                "train_loss": train_loss,
                "penalty": penalty,
                **{metric.name: metric.value for metric in metrics},
                **gates,
                "params": params,
                "target": p.pruning.params,
            }
        )
        shown = [f"{metric.name.replace('_', ' ')} {metric.value:.2f}" for metric in metrics]
        shown += [f"kept {'-'.join(map(str, gates['kept'].values()))}"] if gates["kept"] else []
        self.progress.line(
            f"{p.name:<8} epoch {p.epoch + 1:>3}/{p.epochs}  train loss {train_loss:.3f}  "
            + "  ".join([*shown, f"{self.time_left()} left"])
        )
        p.begin_epoch()
        self.say_if_not_learning({metric.name: metric.value for metric in metrics})
        if p.stopped:
            self.progress.line(f"{p.name}: stopped early after {p.bad_epochs} epochs, none better")
        self.is_saved = False

    def say_if_not_learning(self, metrics: dict[str, float]) -> None:
        """Say once in a phase that the model is no better than the unigram model, what to try."""
        if self.has_warned or not has_learned_nothing(self.run.config, metrics):
            return
        self.has_warned = True
        unigram = self.run.config["text"]["unigram_perplexity"]
        tries = " or ".join(f"--set {change}" for change in self.phase.settings.remedies)
        self.progress.line(
            f"{self.phase.name} is not learning yet: the unigram model has a perplexity of "
            f"{unigram:.2f}. If this lasts, try a new run with {tries}."
        )

    def log_step(self) -> None:
        """Show the step; now and then write down mean loss and penalty, which the device sums."""
        p = self.phase
        if p.step % p.settings.log_every:
            if p.device.type == "cpu":  # a GPU's steps are only queued here, not done
                self.progress.step(p.step)
            return
        loss, penalty = p.means.since_log()
        if not math.isfinite(loss + penalty):
            self.diverged()
        epoch = round(p.epochs_done, 4)
        losses = {"epoch": epoch, "loss": loss, "penalty": penalty, "lr": p.lr}
        self.write({"event": "step", **losses})
        shown = {"epoch": f"{epoch:.1f}", "loss": f"{loss:.3f}"}
        if p.pruning.is_on:
            kept = (int(gate.keep.sum()) for gate in thinrnn.gates(p.model).values())
            shown["kept"] = "-".join(map(str, kept))
        self.progress.step(p.step, **shown)

    def write(self, event: dict[str, Any]) -> None:
        """Write an event to metrics.jsonl, the report and TensorBoard."""
        p = self.phase
        event |= {"phase": p.name, "step": p.step, "seconds": round(self.seconds, 3)}
        self.metrics.write(event)
        self.monitor(event)
        self.watch(event)

    @property
    def seconds(self) -> float:
        """Seconds spent on this phase, in earlier processes too."""
        return self.seconds_before + time.monotonic() - self.began

    def time_left(self) -> str:
        """Return how long the rest of the run takes, at this phase's mean speed since it began."""
        p = self.phase
        left = p.steps - p.step + p.later
        return time_left(time.monotonic() - self.began, p.step - self.first, left)

    def is_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        s = self.phase.settings
        by_steps = s.checkpoint_steps and self.phase.step % s.checkpoint_steps == 0
        return bool(by_steps) or time.monotonic() - self.saved >= s.checkpoint_seconds

    def save_if_due(self, stop: StopRequest) -> None:
        """Write a checkpoint from time to time, and before the training stops on request."""
        p = self.phase
        is_due, stops = p.processes.any(self.is_due(), stop.requested)
        if is_due or stops:
            self.save()
        if stops:
            raise InterruptedRunError(
                f"stopped at step {p.step} of {p.steps} of {p.name}, checkpoint written; "
                f"go on with '{command('train', '--resume', self.run.path)}'"
            )

    def save(self) -> None:
        """Write a checkpoint, unless the training has diverged."""
        p = self.phase
        if not p.is_finite():
            self.diverged()
        position, seconds = self.metrics.position(), self.seconds
        state = {"training": p.snapshot(), "metrics": position, "seconds": seconds}
        self.run.checkpoints.save(p.name, state)
        self.saved = time.monotonic()
        self.is_saved = True

    def resume(self) -> None:
        """Go back to the last whole checkpoint, if there is one."""
        p = self.phase
        saved, notes = self.run.checkpoints.latest(p.name)
        for note in notes:
            self.progress.line(note)
        if saved is None:
            self.metrics.cut_from("phase", p.name)
            return
        with fitting(self.run.path):
            p.restore_(saved["training"])
            self.metrics.cut(saved["metrics"])
            self.seconds_before, self.first = saved["seconds"], p.step
        self.is_saved = True
        self.progress.line(f"going on with {p.name} at epoch {p.epochs_done:.2f}, step {p.step}")

    def diverged(self) -> None:
        """Raise an error with the checkpoint that is left and settings that may help."""
        p, s = self.phase, self.phase.settings
        there = self.run.checkpoints.of(p.name)
        kept = f"the last good checkpoint, {there[-1]}, is kept" if there else "no checkpoint yet"
        clip = s.clip / 2 if s.clip else s.usual_clip
        tries = [f"lr={s.lr / 2:g}", f"clip={clip:g}"]
        if p.pruning.is_on:
            tries.append(f"gate_lr={s.gate_lr / 2:g}")
        if s.precision != "float32" and p.device.type == "cuda":
            tries.append("precision=float32")
        raise DivergedError(
            f"the loss of {p.name} is no longer a number at step {p.step}; {kept}. "
            f"Try one of {', '.join(tries)}: "
            f"'{command('train', '--resume', self.run.path, '--set', tries[0])}'"
        )
