"""The end of a phase: the weights to keep, compacted, verified, scored, saved, summed up."""

from typing import Any

import torch
from torch import nn

import thinrnn
from thinrnn._surgery.save import Precision
from thinrnn.lab.command import command
from thinrnn.lab.models.weights import set_weights_
from thinrnn.lab.recipes.gate_log import kept_in, pattern
from thinrnn.lab.recipes.language_model.corpus import Text
from thinrnn.lab.recipes.language_model.data import EOS
from thinrnn.lab.recipes.language_model.evaluate import mean_loss, perplexity
from thinrnn.lab.recipes.language_model.fit import Fitting
from thinrnn.lab.recipes.language_model.load import save_model
from thinrnn.lab.recipes.language_model.model import LanguageModel, example_tokens, find_plan
from thinrnn.lab.recipes.language_model.phases import (
    Shape,
    build_model,
    build_training,
    model_arguments,
)
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.language_model.training import Training
from thinrnn.lab.run import RunFolder
from thinrnn.lab.run.files import write_json
from thinrnn.lab.run.folder import KIND_OF, MODELS
from thinrnn.lab.run.progress import Progress
from thinrnn.plan import Plan


def finish_phase(
    fitting: Fitting, shape: Shape, plan: Plan | None, device: torch.device
) -> dict[str, Any]:
    """Write the model and the summary of a phase, and return the summary."""
    training, run, text = fitting.training, fitting.run, fitting.text
    settings, phase = training.settings, training.phase
    memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    model, extra = best_model(training, shape, plan, text, run)
    small = run.summary("small")
    if phase == "gated":
        neurons = extra.pop("neurons")
    elif phase == "control" and small is not None:
        neurons = small["neurons"]
    else:
        assert isinstance(model, LanguageModel)
        plan = find_plan(model)
        neurons = {group.name: group.size for group in plan.groups}
    folder = run.path / MODELS[KIND_OF[phase]]
    arguments = model_arguments(settings, shape, len(text.vocabulary))
    precision: Precision | None = "float32" if phase == "gated" else None
    save_model(model, folder, arguments, text.vocabulary, precision)
    model.to(device)
    summary = {
        **quality(model, text, settings),
        **size(model),
        "neurons": neurons,
        "milliseconds": None,
        "batch": settings.bench_batch,
        "steps": settings.bench_steps,
        "threads": settings.bench_threads,
        "epochs": training.epoch,
        "seconds": round(fitting.seconds, 3),
        "memory": memory,
        **extra,
    }
    kind = "small" if phase == "gated" else phase
    run.write_summary(kind, summary)
    return summary


def best_model(
    training: Training, shape: Shape, plan: Plan | None, text: Text, run: RunFolder
) -> tuple[nn.Module, dict[str, Any]]:
    """Return the model to keep, on the CPU, and what only a pruned one has to tell."""
    cpu = torch.device("cpu")
    again, _ = build_training(training.settings, training.phase, shape, text, cpu, plan)
    assert training.best is not None
    set_weights_(again.model, again.pruning, training.best)
    again.model.eval()
    if plan is None:
        return again.model, {}
    small, difference = compact_and_verify(again, text)
    kept = kept_in(again.model)
    whole = build_model(training.settings, shape, len(text.vocabulary))
    write_json(run.path / "pattern.json", pattern(whole, plan, kept))
    neurons = {name: len(left) for name, left in kept.items()}
    # the gates may have gone into the weights half way: both steps count
    difference = max(difference, training.fold_difference)
    return small, {"neurons": neurons, "difference": difference}


def compact_and_verify(
    training: Training, text: Text, round_to: int = 1
) -> tuple[nn.Module, float]:
    """Return the small model and how far its outputs are from the gated one's, on real text."""
    gated, target = training.model, training.pruning.target
    small = thinrnn.compact(gated, target=target, round_to=round_to)
    steps = min(35, len(text.valid) // 2)
    tokens = text.valid[: 2 * steps].view(2, steps).t().long()
    return small, thinrnn.verify(gated, small, tokens, target=target)


def quality(model: nn.Module, text: Text, settings: LanguageModelSettings) -> dict[str, Any]:
    """Return perplexities; the test text is read here and nowhere else."""
    start = text.vocabulary.number(EOS)

    def score(tokens: torch.Tensor) -> float:
        return perplexity(mean_loss(model, tokens, batch=settings.eval_batch, start=start))

    test = None if text.test is None else score(text.test)
    return {"valid_perplexity": score(text.valid), "test_perplexity": test}


def size(model: nn.Module) -> dict[str, int]:
    """Return parameters, weights, mult-adds per token and bytes."""
    device = next(model.parameters()).device
    count = thinrnn.count(model, example_tokens(1, 1, device))
    return {
        "params": count.params,
        "weights": count.weights,
        "macs": count.macs,
        "bytes": count.bytes,
    }


def time_models(run: RunFolder, settings: LanguageModelSettings, progress: Progress) -> None:
    """Time all models of the run side by side on the CPU and add that to their summaries."""
    from thinrnn.lab.recipes.language_model.export import onnx_calls
    from thinrnn.lab.recipes.language_model.load import load_model
    from thinrnn.timing import benchmark

    summaries = run.summaries()
    if all(summary["milliseconds"] is not None for summary in summaries.values()):
        return
    progress.line("timing the models side by side")
    folders = {kind: run.path / MODELS[kind] for kind in summaries}
    models: dict[str, Any] = {kind: load_model(path).model for kind, path in folders.items()}
    in_onnx = {}
    if settings.bench_seconds:
        in_onnx = onnx_calls(folders, threads=settings.bench_threads, progress=progress)
    else:
        progress.line(
            "not timed in ONNX Runtime, since bench_seconds is 0; "
            f"later: {command('bench', run.path, '--runtimes', 'all')}"
        )
    models |= {f"{kind} in ONNX Runtime": call for kind, (call, _) in in_onnx.items()}
    tokens = example_tokens(settings.bench_batch, settings.bench_steps)
    timing = benchmark(
        models, tokens, threads=settings.bench_threads, seconds=settings.bench_seconds
    )
    for kind, summary in summaries.items():
        summary["milliseconds"] = timing[kind].median
        if kind in in_onnx:
            summary["onnx_milliseconds"] = timing[f"{kind} in ONNX Runtime"].median
            summary["onnx_difference"] = in_onnx[kind][1]
        run.write_summary(kind, summary)
