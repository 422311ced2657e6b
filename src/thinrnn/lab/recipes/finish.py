"""The end of a phase: the weights to keep, compacted, verified, measured, saved, summed up."""

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

import thinrnn
from thinrnn._surgery.provenance import record_of
from thinrnn._surgery.save import Precision
from thinrnn.errors import HardCodedSizeError, RunError
from thinrnn.lab.command import command
from thinrnn.lab.model_folder import save_weights
from thinrnn.lab.recipes.gate_log import kept_in, pattern
from thinrnn.lab.recipes.phase import PLAN, Phase, known_plan
from thinrnn.lab.recipes.protocol import D, Recipe, S
from thinrnn.lab.recipes.pruning import set_weights_
from thinrnn.lab.run import RunFolder
from thinrnn.lab.run.checkpoint import fitting
from thinrnn.lab.run.files import write_json
from thinrnn.lab.run.folder import KIND_OF, MODELS
from thinrnn.lab.run.progress import Progress

CPU = torch.device("cpu")


def finish_phase(phase: Phase[S, D], run: RunFolder, seconds: float) -> None:
    """Write the model and the summary of a phase."""
    recipe, settings, data, device = phase.recipe, phase.settings, phase.data, phase.device
    memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    assert phase.best is not None
    with fitting(run.path):  # the best weights may come from a checkpoint
        again = restored(phase, phase.best)
    model, extra = again.model, {}
    small = run.summary("small")
    if phase.plan is not None:
        model, difference = compact_and_verify(again)
        kept = kept_in(again.model)
        write_json(
            run.path / "pattern.json", pattern(recipe.build(settings, data), phase.plan, kept)
        )
        neurons = {name: len(left) for name, left in kept.items()}
        # the gates may have gone into the weights half way: both steps count
        extra = {"difference": max(difference, phase.fold_difference)}
    elif phase.name == "control" and small is not None:
        neurons = small["neurons"]
    else:
        groups = known_plan(recipe, settings, data, run).groups
        neurons = {group.name: group.size for group in groups}
    kind = KIND_OF[phase.name]
    precision: Precision | None = "float32" if kind == "small" else None
    recipe.save(settings, model, data, run.path / MODELS[kind], precision)
    sizes = recipe.sizes(model)
    metrics = recipe.evaluate(settings, model.to(device), data, final=True)
    summary = {
        **dict.fromkeys(recipe.metrics),  # None: there is no data for it
        **{metric.name: metric.value for metric in metrics},
        **sizes,
        "neurons": neurons,
        "milliseconds": None,
        "batch": settings.bench_batch,
        "steps": settings.bench_steps,
        "threads": settings.bench_threads,
        "epochs": phase.epoch,
        "training_steps": phase.step,
        "seconds": round(seconds, 3),
        "memory": memory,
        **extra,
    }
    run.write_summary(kind, summary)


def restored(phase: Phase[S, D], weights: dict[str, Any]) -> Phase[S, D]:
    """Return the phase built again on the CPU, with the given weights, in eval."""
    again = Phase(phase.recipe, phase.settings, phase.name, phase.data, CPU, plan=phase.plan)
    set_weights_(again.model, again.pruning, weights)
    again.model.eval()
    return again


def compact_and_verify(phase: Phase[S, D], round_to: int = 1) -> tuple[nn.Module, float]:
    """Return the small model and how far its outputs are from the gated one's, on real data."""
    gated, target = phase.model, phase.pruning.target
    small = thinrnn.compact(gated, target=target, round_to=round_to)
    return small, thinrnn.verify(gated, small, phase.data.example(), target=target)


def recompact(
    recipe: Recipe[S, D],
    run: RunFolder,
    folder: Path,
    *,
    round_to: int,
    precision: str,
    progress: Progress,
) -> dict[str, Any]:
    """Compact the gated model of the last checkpoint, verify it, save it; return what it is.

    The weights are those of the finished size or, before there are any, those of the last step.
    """
    settings = recipe.settings(**run.config["settings"])
    saved, notes = run.checkpoints.latest("gated")
    for note in notes:
        progress.line(note)
    if saved is None:
        raise RunError(
            f"{run.path} has no checkpoint of a gated model: "
            f"go on with '{command('train', '--resume', run.path)}'."
        )
    data = recipe.load_data(settings, progress)
    plan = known_plan(recipe, settings, data, run)
    phase = Phase(recipe, settings, "gated", data, CPU, plan=plan)
    with fitting(run.path):
        gated = restored(phase, saved["training"]["best"] or saved["training"]["model"])
    try:
        small, difference = compact_and_verify(gated, round_to)
    except HardCodedSizeError as error:  # our models have none, so the plan left something out
        raise RunError(f"'{run.path / PLAN}' does not fit the model: {error}") from error
    recipe.save(settings, small, data, folder, precision)  # type: ignore[arg-type]  # save checks
    neurons = {name: len(kept) for name, kept in record_of(small).kept.items()}
    return {"neurons": neurons, "difference": difference, **recipe.sizes(small)}


def store(recipe: Recipe[Any, Any], folder: Path, out: Path, precision: Precision) -> None:
    """Write the small model of a folder into another one with the given precision."""
    write_beside(recipe.load(folder).model, folder, out, precision)


def write_beside(small: nn.Module, folder: Path, out: Path, precision: Precision) -> None:
    """Write a small model made from the model of a folder, with what else it needs from there."""
    save_weights(small, out, precision)
    for name in ("recipe.json", "vocabulary.json"):
        shutil.copyfile(folder / name, out / name)


def time_models(recipe: Recipe[S, D], settings: S, run: RunFolder, progress: Progress) -> None:
    """Time all models of the run side by side on the CPU and add that to their summaries."""
    from thinrnn.timing import benchmark

    summaries = run.summaries()
    if all(summary["milliseconds"] is not None for summary in summaries.values()):
        return
    progress.line("timing the models side by side")
    folders = {kind: run.path / MODELS[kind] for kind in summaries}
    loaded = {kind: recipe.load(folder) for kind, folder in folders.items()}
    inputs = next(iter(loaded.values())).example(settings.bench_batch, settings.bench_steps)
    in_onnx = recipe.onnx_calls(folders, settings, progress)
    models: dict[str, Any] = {kind: item.model for kind, item in loaded.items()}
    models |= {f"{kind} in ONNX Runtime": call for kind, (call, _) in in_onnx.items()}
    timing = benchmark(
        models, inputs, threads=settings.bench_threads, seconds=settings.bench_seconds
    )
    for kind, summary in summaries.items():
        summary["milliseconds"] = timing[kind].median
        summary["milliseconds_spread"] = timing[kind].spread
        if kind in in_onnx:
            in_runtime = timing[f"{kind} in ONNX Runtime"]
            summary["onnx_milliseconds"] = in_runtime.median
            summary["onnx_milliseconds_spread"] = in_runtime.spread
            summary["onnx_difference"] = in_onnx[kind][1]
        run.write_summary(kind, summary)
