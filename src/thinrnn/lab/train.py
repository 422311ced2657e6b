"""The driver of every recipe: a run from its data to its report, and the training loop.

    data ── dense ── gated ── control ── timing ── report
                       │         ▲
                       ╰─ small ─╯  the control has the sizes of the small model

A phase that is over has its summary in the run folder; one that is not goes on from its last
checkpoint, bit for bit as if it had never stopped.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic

import torch

import thinrnn
from thinrnn import __version__
from thinrnn.lab import recipes
from thinrnn.lab.command import command
from thinrnn.lab.device.processes import ALONE, Processes, together
from thinrnn.lab.recipes.choice import choice_table
from thinrnn.lab.recipes.finish import finish_phase, time_models
from thinrnn.lab.recipes.gate_log import gate_state, params_kept
from thinrnn.lab.recipes.phase import PLAN, Phase, begin_phase, reachable_plan
from thinrnn.lab.recipes.protocol import D, Recipe, S, TrainingBatches
from thinrnn.lab.recipes.settings import TrainingSettings, as_json, changed
from thinrnn.lab.report import write_report
from thinrnn.lab.run import DivergedError, InputError, InterruptedRunError, RunFolder
from thinrnn.lab.run.checkpoint import fitting
from thinrnn.lab.run.environment import command_line, environment
from thinrnn.lab.run.files import remove_folder, write_atomic, write_json
from thinrnn.lab.run.folder import KIND_OF
from thinrnn.lab.run.follower import FollowedRun
from thinrnn.lab.run.metrics import MetricsFile
from thinrnn.lab.run.monitor import Monitor
from thinrnn.lab.run.progress import Progress, time_left
from thinrnn.lab.run.stop import StopRequest
from thinrnn.lab.verdicts import has_learned_nothing

FORMAT = 2  # of the checkpoints; a run that was begun with another one cannot go on
SCRATCH = "scratch"  # folder of a run for what only its training needs

Watch = Callable[[dict[str, Any]], None]  # gets every event of metrics.jsonl; may raise


def unwatched(event: dict[str, Any]) -> None:
    """Let a run go on, whatever happens in it."""


def start(
    recipe: Recipe[S, D],
    settings: S,
    folder: Path,
    *,
    preset: str | None,
    progress: Progress,
    processes: Processes = ALONE,
    watch: Watch = unwatched,
) -> RunFolder:
    """Begin a new run in a folder and see it through."""
    settings = settings.with_full_paths()
    device = choose_device(settings)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    settings, choices = processes.of_first(lambda: recipe.choose(settings, device))
    if choices:
        progress.line(choice_table(choices))
    with processes.in_turn():
        data = recipe.load_data(settings, progress)
    recipe.check(settings, data, settings.phases)
    plan = reachable_plan(recipe, settings, data)
    config = {
        "thinrnn": __version__,
        "format": FORMAT,
        "recipe": recipe.name,
        "metrics": dict(recipe.metrics),
        "preset": preset,
        "settings": as_json(settings),
        "chosen": [asdict(choice) for choice in choices],
        "command": command_line(),
        "seed": settings.seed,
        "text": data.facts(),
        "environment": environment(str(device)) | {"processes": processes.count},
    }
    share(settings, processes)
    with processes.in_turn():
        if processes.is_first:
            run = RunFolder.create(folder, config)
            write_atomic(run.path / PLAN, plan.to_json())
        else:
            run = FollowedRun(folder)
    train(recipe, settings, data, run, device, progress, processes, watch=watch)
    return run


def settings_of(run: RunFolder, changes: list[str]) -> TrainingSettings:
    """Return the settings of a run, with those changes that may be made while it goes on."""
    recipe = recipes.recipe(run.config["recipe"])
    for change in changes:
        if change.partition("=")[0].strip() not in recipe.settings.resumable:
            raise InputError(
                f"'{change}' cannot be changed in a run that has begun: "
                f"only {', '.join(recipe.settings.resumable)} can."
            )
    settings: TrainingSettings = changed(recipe.settings(**run.config["settings"]), changes)
    return settings


def resume(
    folder: Path,
    changes: list[str],
    *,
    progress: Progress,
    processes: Processes = ALONE,
    watch: Watch = unwatched,
) -> RunFolder:
    """Go on with a run where its last checkpoint is; finished phases are not repeated."""
    run = RunFolder(folder) if processes.is_first else FollowedRun(folder)
    recipe: Recipe[Any, Any] = recipes.recipe(run.config["recipe"])
    settings = settings_of(run, changes)
    share(settings, processes)
    left = [phase for phase in settings.phases if run.summary(KIND_OF[phase]) is None]
    if left and run.config.get("format") != FORMAT:
        raise InputError(
            f"{run.path} was begun by another version of thinrnn, whose checkpoints this one "
            "cannot read: start a new run."
        )
    with processes.in_turn():
        data = recipe.load_data(settings, progress)
    if data.facts()["sha256"] != run.config["text"]["sha256"]:
        raise InputError(
            f"the data of {run.path} has changed since the run began: start a new run."
        )
    recipe.check(settings, data, left)
    # As many threads as at the beginning: sums in another order would end in other weights.
    if processes.count == 1:
        torch.set_num_threads(run.config["environment"]["threads"])
    device = choose_device(settings)
    train(recipe, settings, data, run, device, progress, processes, bool(changes), watch)
    return run


def train(
    recipe: Recipe[S, D],
    settings: S,
    data: D,
    run: RunFolder,
    device: torch.device,
    progress: Progress,
    processes: Processes = ALONE,
    is_changed: bool = False,
    watch: Watch = unwatched,
) -> None:
    """Train every phase that is not over yet, then time the models and write the report.

    Settings that were changed are written down once no other process can be writing to the run.
    """
    go_on = f"go on with '{command('train', '--resume', run.path)}'"
    with (
        together(processes, go_on),
        report_if_stopped(run),
        run.locked(),
        contextlib.closing(run.metrics()) as metrics,
        contextlib.closing(
            Monitor(
                run,
                progress,
                report=lambda: write_report([run.path]),
                tensorboard=settings.tensorboard and processes.is_first,
            )
        ) as monitor,
    ):
        run.clear_leftovers()
        if is_changed and processes.is_first:
            run.config["settings"] = as_json(settings)
            write_json(run.path / "config.json", run.config)
        batches: dict[bool, TrainingBatches] = {}  # gated and control share theirs
        for name in settings.phases:
            if run.summary(KIND_OF[name]) is not None:
                continue
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            is_dense = name == "dense"
            if is_dense not in batches:
                with processes.in_turn():
                    batches[is_dense] = recipe.batches(settings, data, name, device, run, progress)
            phase = begin_phase(recipe, settings, name, data, device, run, processes)
            phase.batches = batches[is_dense]
            trainer = Trainer(phase, run, metrics, monitor, progress, watch)
            trainer.resume()
            with StopRequest(progress) as stop:
                trainer.train(stop)
            if processes.is_first:
                finish_phase(phase, run, trainer.seconds)
            processes.wait()
            if name != "gated":  # its last checkpoint is what `thinrnn compact` reads
                run.checkpoints.drop(name)
        processes.close()
        if not processes.is_first:
            return
        remove_folder(run.path / SCRATCH)
        time_models(recipe, settings, run, progress)
        monitor.write_report()


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
        p, every = self.phase, self.phase.settings.log_every
        self.progress.start(p.name, p.steps, p.step)
        if p.step == 0:
            self.save()
        while not p.is_over:
            p.model.train()
            while not p.epoch_is_over:
                p.take_step()  # learning rate, gates, forward, backward, clip, optimizer
                self.is_saved = False
                if p.step % every == 0:
                    self.log()
                elif p.device.type == "cpu":  # a GPU's steps are only queued here, not done
                    self.progress.step(p.step)
                is_due, stops = p.processes.any(self.is_due(), stop.requested)
                if is_due or stops:
                    self.save()
                if stops:
                    raise InterruptedRunError(
                        f"stopped at step {p.step} of {p.steps} of {p.name}, checkpoint written; "
                        f"go on with '{command('train', '--resume', self.run.path)}'"
                    )
            self.end_epoch()
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

    def log(self) -> None:
        """Write down mean loss and penalty since the last log; waits for the device."""
        p = self.phase
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
        """Return how long the rest of this phase takes, at its mean speed in this process."""
        p = self.phase
        return time_left(time.monotonic() - self.began, p.step - self.first, p.steps - p.step)

    def is_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        s = self.phase.settings
        by_steps = s.checkpoint_steps and self.phase.step % s.checkpoint_steps == 0
        return bool(by_steps) or time.monotonic() - self.saved >= s.checkpoint_seconds

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


def share(settings: TrainingSettings, processes: Processes) -> None:
    """Refuse a training that several processes cannot share."""
    processes.check(settings.batch)
    if processes.count > 1 and settings.gate == "arm" and "gated" in settings.phases:
        raise InputError("gate=arm learns in one process: leave gate=hard-concrete, or start one.")


def choose_device(settings: TrainingSettings) -> torch.device:
    """Return where to train; refuse a GPU that is not there."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise InputError("device is 'cuda', but torch finds no GPU here: use --set device=cpu.")
    if settings.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    torch.set_float32_matmul_precision("high")  # TF32, where a GPU has it
    return torch.device("cuda")


@contextlib.contextmanager
def report_if_stopped(run: RunFolder) -> Iterator[None]:
    """Write the report if the run is stopped inside `with`."""
    try:
        yield
    except InterruptedRunError:
        with contextlib.suppress(Exception, KeyboardInterrupt):  # the checkpoint is what matters
            write_report([run.path])
        raise
