"""The whole run, top to bottom: data, dense model, gated model, control, timing, report."""

import contextlib
from pathlib import Path
from typing import Any

import torch

from thinrnn import __version__
from thinrnn.lab.recipes.language_model.train import choose_device
from thinrnn.lab.recipes.settings import as_json, changed
from thinrnn.lab.recipes.squad.batches import Batches
from thinrnn.lab.recipes.squad.finish import finish_phase, time_models
from thinrnn.lab.recipes.squad.fit import Fitting
from thinrnn.lab.recipes.squad.phases import build_training, dense_shape, shape_of
from thinrnn.lab.recipes.squad.prepare import Prepared, prepare
from thinrnn.lab.recipes.squad.settings import SquadSettings
from thinrnn.lab.recipes.squad.training import questions_of
from thinrnn.lab.report import write_report
from thinrnn.lab.run import InputError, RunFolder
from thinrnn.lab.run.environment import command_line, environment
from thinrnn.lab.run.files import write_atomic, write_json
from thinrnn.lab.run.folder import KIND_OF
from thinrnn.lab.run.monitor import Monitor
from thinrnn.lab.run.progress import Progress
from thinrnn.lab.run.stop import StopRequest
from thinrnn.plan import Plan

# What may be changed when a run goes on: nothing that the data or the model's shape depends on.
RESUMABLE = (
    *("lr", "gate_lr", "weight_decay", "clip", "precision", "cuda_graphs", "tensorboard"),
    *("log_every", "checkpoint_seconds", "checkpoint_steps", "data", "cache"),
)


def start(
    settings: SquadSettings, folder: Path, *, preset: str | None, progress: Progress
) -> RunFolder:
    """Begin a new run in a folder and see it through."""
    paths = {"data": settings.data, "start_from": settings.start_from}
    settings = settings.replaced(**{k: str(Path(p).resolve()) for k, p in paths.items() if p})
    data = load_data(settings, progress)
    device = choose_device(settings)  # type: ignore[arg-type]
    if settings.threads:
        torch.set_num_threads(settings.threads)
    config = {
        "thinrnn": __version__,
        "recipe": "squad",
        "preset": preset,
        "settings": as_json(settings),
        "command": command_line(),
        "seed": settings.seed,
        "text": facts(data),
        "environment": environment(str(device)),
    }
    run = RunFolder.create(folder, config)
    train(settings, data, run, device, progress)
    return run


def resume(folder: Path, changes: list[str], *, progress: Progress) -> RunFolder:
    """Go on with a run where its last checkpoint is; finished phases are not repeated."""
    run = RunFolder(folder)
    for change in changes:
        if change.partition("=")[0].strip() not in RESUMABLE:
            raise InputError(
                f"'{change}' cannot be changed in a run that has begun: "
                f"only {', '.join(RESUMABLE)} can."
            )
    settings = changed(SquadSettings(**run.config["settings"]), changes)
    data = load_data(settings, progress)
    if data.fingerprint != run.config["text"]["sha256"]:
        raise InputError(f"the data of {folder} has changed since the run began: start a new one.")
    if changes:
        run.config["settings"] = as_json(settings)
        write_json(run.path / "config.json", run.config)
    # As many threads as at the beginning: sums in another order would end in other weights.
    torch.set_num_threads(run.config["environment"]["threads"])
    train(settings, data, run, choose_device(settings), progress)  # type: ignore[arg-type]
    return run


def train(
    settings: SquadSettings,
    data: Prepared,
    run: RunFolder,
    device: torch.device,
    progress: Progress,
) -> None:
    """Train every phase that is not over yet, then time the models and write the report."""
    with run.locked(), StopRequest() as stop, contextlib.closing(run.metrics()) as metrics:
        run.clear_leftovers()
        monitor = Monitor(
            run,
            progress,
            report=lambda: write_report([run.path]),
            tensorboard=settings.tensorboard,
        )
        batches = Batches(data.train, data.tables, device)
        dev = (data.dev, Batches(data.dev, data.tables, device))
        for phase in settings.phases:
            if run.summary(KIND_OF[phase]) is not None:
                continue
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            shape = dense_shape(settings)
            if phase == "control":
                shape = shape_of(settings, (run.summary("small") or {})["neurons"])
            training, plan = build_training(
                settings, phase, shape, data, batches, known_plan(run, phase)
            )
            if plan is not None:
                write_atomic(run.path / "plan.json", plan.to_json())
            fitting = Fitting(training, dev, run, metrics, progress, monitor)
            fitting.resume()
            fitting.finish(stop)
            finish_phase(fitting, shape, plan, data)
            if phase != "gated":  # its last checkpoint is what `thinrnn compact` reads
                run.checkpoints.drop(phase)
        time_models(run, settings, progress)
        monitor.write_report()
        monitor.close()


def known_plan(run: RunFolder, phase: str) -> Plan | None:
    """Return the plan that this run has found before; to find it takes a while."""
    file = run.path / "plan.json"
    return Plan.from_json(file.read_text()) if phase == "gated" and file.exists() else None


def load_data(settings: SquadSettings, progress: Progress) -> Prepared:
    """Return the data that the settings name, or say what is missing."""
    if not settings.data:
        raise InputError("no data: give --data DIR, a folder that holds squad/ and glove/.")
    data = prepare(
        Path(settings.data),
        more_than=settings.more_than,
        characters_more_than=settings.characters_more_than,
        cache=Path(settings.cache) if settings.cache else None,
        progress=progress,
    )
    left = questions_of(settings, data)
    progress.line(
        f"train: {len(left):,} questions to train on, {len(data.train) - len(left):,} left out "
        f"(longer than {settings.most_context} or {settings.most_question} tokens, or unmapped)"
    )
    return data


def facts(data: Prepared) -> dict[str, Any]:
    """Return what config.json says about the data."""
    return {
        "train_questions": len(data.train),
        "dev_questions": len(data.dev),
        "trained_words": len(data.vocabulary.words),
        "characters": len(data.vocabulary.characters),
        "sha256": data.fingerprint,
    }
