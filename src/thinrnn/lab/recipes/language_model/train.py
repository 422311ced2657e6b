"""The whole run, top to bottom: text, dense model, gated model, control, timing, report."""

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn import __version__
from thinrnn.lab.recipes.language_model import written
from thinrnn.lab.recipes.language_model.corpus import BUILT_IN, PARTS, Text, load_text
from thinrnn.lab.recipes.language_model.data import streams
from thinrnn.lab.recipes.language_model.finish import finish_phase, time_models
from thinrnn.lab.recipes.language_model.fit import Fitting
from thinrnn.lab.recipes.language_model.phases import (
    Shape,
    build_model,
    build_training,
    dense_shape,
    shape_of,
    start_with_,
)
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.language_model.teacher import (
    SoftTargets,
    Together,
    calibrated,
    load_teacher,
    soft_targets,
)
from thinrnn.lab.recipes.settings import as_json, changed
from thinrnn.lab.report import write_report
from thinrnn.lab.run import InputError, InterruptedRunError, RunFolder
from thinrnn.lab.run.environment import command_line, environment
from thinrnn.lab.run.files import write_json
from thinrnn.lab.run.folder import KIND_OF
from thinrnn.lab.run.monitor import Monitor
from thinrnn.lab.run.progress import Progress
from thinrnn.lab.run.stop import StopRequest

Lesson = tuple[Tensor, SoftTargets]  # streams (L, B), and what the teacher says of them
# What may be changed when a run goes on: nothing that the text or the model's shape depends on.
RESUMABLE = (
    *("lr", "gate_lr", "weight_decay", "clip", "lr_decay", "patience"),
    *("precision", "cuda_graphs", "tensorboard"),
    *("log_every", "checkpoint_seconds", "checkpoint_steps"),
)


def start(
    settings: LanguageModelSettings, folder: Path, *, preset: str | None, progress: Progress
) -> RunFolder:
    """Begin a new run in a folder and see it through."""
    settings = settings.replaced(**_absolute(settings))
    text = load_text(settings)
    streams(text.train, settings.batch)  # too little text is said before a folder is made
    check_models(settings, text, settings.phases)
    device = choose_device(settings)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    run = RunFolder.create(
        folder,
        {
            "thinrnn": __version__,
            "recipe": "language_model",
            "preset": preset,
            "settings": as_json(settings),
            "command": command_line(),
            "seed": settings.seed,
            "text": _facts(text),
            "environment": environment(str(device)),
        },
    )
    train(settings, text, run, device, progress)
    return run


def resume(folder: Path, changes: list[str], *, progress: Progress) -> RunFolder:
    """Go on with a run where its last checkpoint is; finished phases are not repeated."""
    run = RunFolder(folder)
    fixed = [c for c in changes if c.partition("=")[0].strip() not in RESUMABLE]
    if fixed:
        raise InputError(
            f"'{fixed[0]}' cannot be changed in a run that has begun: "
            f"only {', '.join(RESUMABLE)} can."
        )
    settings = changed(LanguageModelSettings(**run.config["settings"]), changes)
    text = load_text(settings)
    if _facts(text) != run.config["text"]:
        raise InputError(f"the text of {folder} has changed since the run began: start a new one.")
    left = [phase for phase in settings.phases if run.summary(KIND_OF[phase]) is None]
    check_models(settings, text, left)
    if changes:
        run.config["settings"] = as_json(settings)
        write_json(run.path / "config.json", run.config)
    # As many threads as at the beginning: sums in another order would end in other weights.
    torch.set_num_threads(run.config["environment"]["threads"])
    train(settings, text, run, choose_device(settings), progress)
    return run


def train(
    settings: LanguageModelSettings,
    text: Text,
    run: RunFolder,
    device: torch.device,
    progress: Progress,
) -> None:
    """Train every phase that is not over yet, then time the models and write the report."""
    with (
        report_if_stopped(run),
        run.locked(),
        StopRequest() as stop,
        contextlib.closing(run.metrics()) as metrics,
    ):
        run.clear_leftovers()
        monitor = Monitor(
            run,
            progress,
            report=lambda: write_report([run.path]),
            tensorboard=settings.tensorboard,
        )
        lesson: Lesson | None = None
        for phase in settings.phases:
            if run.summary(KIND_OF[phase]) is not None:
                continue
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            shape = shape_for(phase, settings, run)
            name = settings.starts_from if phase == "gated" else ""
            given = trained(name, text, run) if name else None
            data, soft = None, None
            if settings.distill and phase != "dense":
                # before the model is built, which sets the seed: the same masks if it goes on here
                lesson = lesson or ask_teacher(settings, text, run, device, progress)
                data, soft = lesson
            training, plan = build_training(
                settings, phase, shape, text, device, trained=given, data=data
            )
            training.soft = soft
            fitting = Fitting(training, text, run, metrics, progress, monitor)
            fitting.resume()
            fitting.finish(stop)
            if training.stopped:
                progress.line(
                    f"{phase}: stopped early, {training.bad_epochs} epochs without a better one"
                )
            finish_phase(fitting, shape, plan, device)
            if phase != "gated":  # its last checkpoint is what `thinrnn compact` reads
                run.checkpoints.drop(phase)
        (run.path / written.FILE).unlink(missing_ok=True)
        time_models(run, settings, progress)
        monitor.write_report()
        monitor.close()


def ask_teacher(
    settings: LanguageModelSettings,
    text: Text,
    run: RunFolder,
    device: torch.device,
    progress: Progress,
) -> Lesson:
    """Return the text to learn from, and what the teacher says of it.

    The teacher is the run's own dense model, another, or several together. It also writes some of
    the text, if that is wanted.
    """
    teachers = []
    for name in settings.teachers:
        model = trained(name, text, run).to(device)
        teachers.append(calibrated(model, text, batch=settings.eval_batch))
        progress.line(
            f"the teacher, {name}, speaks at a temperature of {teachers[-1].temperature:.2f}"
        )
    teacher = teachers[0]
    if len(teachers) > 1:
        teacher = calibrated(Together(teachers), text, batch=settings.eval_batch)
        progress.line(f"together they speak at a temperature of {teacher.temperature:.2f}")
    real = streams(text.train, settings.batch).to(device)
    if not settings.written:
        progress.line("the teacher reads the training text")
        return real, soft_targets(teacher, real)
    texts = written.with_written(real, teacher, settings, run, progress)  # (L, n, B)
    progress.line("the teacher reads the training text and what it wrote")
    soft = soft_targets(teacher, texts.flatten(1))  # all texts side by side
    said = (said.unflatten(1, texts.shape[1:]) for said in (soft.words, soft.shares))
    return written.in_shares(texts), SoftTargets(*map(written.in_shares, said))


def check_models(settings: LanguageModelSettings, text: Text, phases: Collection[str]) -> None:
    """Say early if the models that phases ask for, or are given, do not fit the text."""
    if settings.rare >= len(text.vocabulary):
        raise InputError(
            f"rare={settings.rare} words are to have shorter vectors, but the vocabulary has "
            f"{len(text.vocabulary)}: set rare to fewer."
        )
    if settings.distill and not {"gated", "control"}.isdisjoint(phases):
        for name in settings.teachers:
            if name != "dense":
                load_teacher(Path(name), text)
    if "gated" in phases and settings.starts_from not in ("", "dense"):
        model = build_model(settings, dense_shape(settings), len(text.vocabulary))
        start_with_(model, load_teacher(Path(settings.starts_from), text))


def trained(name: str, text: Text, run: RunFolder) -> nn.Module:
    """Return the model of a folder; dense: that of this run."""
    return load_teacher(run.path / "dense" if name == "dense" else Path(name), text)


@contextlib.contextmanager
def report_if_stopped(run: RunFolder) -> Iterator[None]:
    """Let the report say that the run was stopped, if that happens inside `with`."""
    try:
        yield
    except InterruptedRunError:
        with contextlib.suppress(Exception):  # the checkpoint is what matters
            write_report([run.path])
        raise


def shape_for(phase: str, settings: LanguageModelSettings, run: RunFolder) -> Shape:
    """Return the shape that a phase trains: the control has what the gated model kept.

    A control without one is that of another run, and the settings say its shape.
    """
    if phase != "control" or "gated" not in settings.phases:
        return dense_shape(settings)
    small = run.summary("small")
    assert small is not None
    return shape_of(settings, small["neurons"])


def choose_device(settings: LanguageModelSettings) -> torch.device:
    """Return where to train, or say that it is not there."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise InputError("device is 'cuda', but torch finds no GPU here: use --set device=cpu.")
    if settings.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    torch.set_float32_matmul_precision("high")  # TF32, where a GPU has it
    return torch.device("cuda")


def _facts(text: Text) -> dict[str, Any]:
    return {
        "train_tokens": len(text.train),
        "valid_tokens": len(text.valid),
        "test_tokens": None if text.test is None else len(text.test),
        "vocabulary": len(text.vocabulary),
        "sha256": text.fingerprint(),
    }


def _absolute(settings: LanguageModelSettings) -> dict[str, Any]:
    """Return files and folders with full paths, so that a run can be resumed from anywhere."""

    def full(path: str) -> str:
        return path if path in ("", BUILT_IN, "dense", "teacher") else str(Path(path).resolve())

    given = {name: full(getattr(settings, name)) for name in (*PARTS, "start_from")}
    return {**given, "teacher": tuple(map(full, settings.teacher))}
