"""The end of a phase: the weights to keep, compacted, verified, scored, saved, summed up."""

from typing import Any

import torch
from torch import nn

import thinrnn
from thinrnn.lab.models.weights import set_weights_
from thinrnn.lab.recipes.gate_log import kept_in, pattern
from thinrnn.lab.recipes.squad.batches import Batches
from thinrnn.lab.recipes.squad.evaluate import score
from thinrnn.lab.recipes.squad.fit import Fitting, boundary_perplexity
from thinrnn.lab.recipes.squad.load import load_model, save_model, size
from thinrnn.lab.recipes.squad.model import example
from thinrnn.lab.recipes.squad.phases import Shape, build_model, build_training, model_arguments
from thinrnn.lab.recipes.squad.prepare import Prepared
from thinrnn.lab.recipes.squad.settings import SquadSettings
from thinrnn.lab.recipes.squad.training import Training
from thinrnn.lab.run import RunFolder
from thinrnn.lab.run.files import write_json
from thinrnn.lab.run.folder import KIND_OF, MODELS
from thinrnn.lab.run.progress import Progress
from thinrnn.plan import Plan

CPU = torch.device("cpu")


def finish_phase(
    fitting: Fitting, shape: Shape, plan: Plan | None, data: Prepared
) -> dict[str, Any]:
    """Write the model and the summary of a phase, and return the summary."""
    training, run = fitting.training, fitting.run
    settings, phase = training.settings, training.phase
    device = training.batches.device
    memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    model, extra = best_model(training, shape, plan, data, run)
    neurons = extra.pop("neurons", shape.neurons(settings.select))
    arguments = model_arguments(settings, shape, data)
    save_model(
        model,
        run.path / MODELS[KIND_OF[phase]],
        arguments,
        data.vocabulary,
        "float32" if phase == "gated" else None,
    )
    sizes = size(model)
    split, batches = fitting.dev
    reached = score(model.to(device), split, batches, batch=settings.eval_batch)
    summary = {
        "em": reached.em,
        "f1": reached.f1,
        "valid_perplexity": boundary_perplexity(reached.loss),
        "test_perplexity": None,
        **sizes,
        "neurons": neurons,
        "milliseconds": None,
        "batch": settings.bench_batch,
        "steps": settings.bench_steps,
        "threads": settings.bench_threads,
        "epochs": training.epoch,
        "training_steps": training.step,
        "seconds": round(fitting.seconds, 3),
        "memory": memory,
        **extra,
    }
    run.write_summary("small" if phase == "gated" else phase, summary)
    return summary


def best_model(
    training: Training, shape: Shape, plan: Plan | None, data: Prepared, run: RunFolder
) -> tuple[nn.Module, dict[str, Any]]:
    """Return the model to keep, on the CPU, and what only a pruned one has to tell."""
    assert training.best is not None
    settings = training.settings
    batches = Batches(data.dev, data.tables, CPU)
    again, _ = build_training(settings, training.phase, shape, data, batches, plan)
    set_weights_(again.model, again.pruning, training.best)
    again.model.eval()
    if plan is None:
        return again.model, {}
    small, difference = compact_and_verify(again, batches)
    kept = kept_in(again.model)
    write_json(run.path / "pattern.json", pattern(build_model(settings, shape, data), plan, kept))
    neurons = {name: len(left) for name, left in kept.items()}
    # The gates may have gone into the weights half way: both steps count.
    difference = max(difference, training.fold_difference)
    return small, {"neurons": neurons, "difference": difference}


def compact_and_verify(
    training: Training, batches: Batches, round_to: int = 1
) -> tuple[nn.Module, float]:
    """Return the small model and how far its outputs are from the gated one's, on real data."""
    gated, target = training.model, training.pruning.target
    small = thinrnn.compact(gated, target=target, round_to=round_to)
    questions = torch.arange(min(4, len(batches.context_lengths)))
    inputs = batches.take(questions).inputs
    return small, thinrnn.verify(gated, small, inputs, target=target)


def time_models(run: RunFolder, settings: SquadSettings, progress: Progress) -> None:
    """Time all models of the run side by side on the CPU and add that to their summaries."""
    from thinrnn.timing import benchmark

    summaries = run.summaries()
    if all(summary["milliseconds"] is not None for summary in summaries.values()):
        return
    progress.line("timing the models side by side")
    models = {kind: load_model(run.path / MODELS[kind]).model for kind in summaries}
    inputs = example(settings.bench_batch, settings.bench_steps)
    timing = benchmark(
        models, inputs, threads=settings.bench_threads, seconds=settings.bench_seconds
    )
    for kind, summary in summaries.items():
        summary["milliseconds"] = timing[kind].median
        run.write_summary(kind, summary)
