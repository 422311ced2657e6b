"""The driver of every recipe: a run from its data to its report.

    data ── dense ── gated ── control ── timing ── report
                       │         ▲
                       ╰─ small ─╯  the control has the sizes of the small model

A phase that is over has its summary in the run folder; one that is not goes on from its last
checkpoint, bit for bit as if it had never stopped. `train.py` has the loop of a phase.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from thinrnn import __version__
from thinrnn.lab import recipes
from thinrnn.lab.command import command
from thinrnn.lab.device.processes import ALONE, Processes, together
from thinrnn.lab.recipes.choice import choice_table
from thinrnn.lab.recipes.finish import finish_phase, time_models
from thinrnn.lab.recipes.phase import PLAN, begin_phase, reachable_plan
from thinrnn.lab.recipes.protocol import D, Recipe, S, TrainingBatches
from thinrnn.lab.recipes.settings import TrainingSettings, as_json, changed
from thinrnn.lab.report import write_report
from thinrnn.lab.run import InputError, InterruptedRunError, RunFolder
from thinrnn.lab.run.environment import command_line, environment
from thinrnn.lab.run.files import remove_folder, write_atomic, write_json
from thinrnn.lab.run.folder import FORMAT, KIND_OF
from thinrnn.lab.run.follower import FollowedRun
from thinrnn.lab.run.monitor import Monitor
from thinrnn.lab.run.progress import Progress
from thinrnn.lab.run.stop import StopRequest
from thinrnn.lab.train import Trainer, Watch, unwatched

SCRATCH = "scratch"  # folder of a run for what only its training needs


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
    train_phases(recipe, settings, data, run, device, progress, processes, watch=watch)
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
    if left and not run.is_readable_here:
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
    train_phases(recipe, settings, data, run, device, progress, processes, bool(changes), watch)
    return run


def train_phases(
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
