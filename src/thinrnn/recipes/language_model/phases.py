"""The three models of a run, ready to be trained: dense, gated, control."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import thinrnn
from thinrnn.plan import Plan
from thinrnn.recipes.language_model.corpus import Text
from thinrnn.recipes.language_model.data import streams
from thinrnn.recipes.language_model.model import LanguageModel, example_tokens
from thinrnn.recipes.language_model.settings import Settings
from thinrnn.recipes.language_model.training import Penalty, Training


@dataclass(frozen=True)
class Shape:
    """Neurons of the embedding and of each layer."""

    embedding: int
    hidden: tuple[int, ...]


def dense_shape(settings: Settings) -> Shape:
    return Shape(settings.embedding, settings.hidden)


def shape_of(settings: Settings, neurons: dict[str, int]) -> Shape:
    """Return the shape that is left, from neurons by group; coupled groups are joined by "+"."""
    sizes = {part: size for name, size in neurons.items() for part in name.split("+")}
    layer = "rnn.l{}" if len(set(settings.hidden)) == 1 else "rnn.{}.l0"
    return Shape(
        sizes.get("embedding", settings.embedding),
        tuple(sizes.get(layer.format(i), size) for i, size in enumerate(settings.hidden)),
    )


def model_arguments(settings: Settings, shape: Shape, vocabulary: int) -> dict[str, Any]:
    """Return what `LanguageModel` is called with, less what matters in training alone."""
    return {
        "vocabulary": vocabulary,
        "cell": settings.cell,
        "embedding": shape.embedding,
        "hidden": shape.hidden,
        "tied": settings.tied,
    }


def build_model(settings: Settings, phase: str, shape: Shape, vocabulary: int) -> LanguageModel:
    """Return a new model of a phase with weights from the run's seed."""
    torch.manual_seed(settings.seed)
    dropout = settings.dropout
    if phase != "dense" and settings.small_dropout is not None:
        dropout = settings.small_dropout
    arguments = model_arguments(settings, shape, vocabulary)
    return LanguageModel(**arguments, dropout=dropout, init_range=settings.init_range)


def add_gates(settings: Settings, model: nn.Module, steps: int) -> tuple[Plan, Penalty]:
    """Put gates on a dense model; return its plan and the penalty that closes them."""
    device = next(model.parameters()).device
    plan = thinrnn.find_groups(model, example_tokens(device=device))
    thinrnn.attach_(model, plan, gate=thinrnn.HardConcrete(mean=settings.gate_mean))
    if settings.l0 is not None:
        return plan, thinrnn.L0(model, weight=settings.l0)
    steps = math.ceil(settings.target_time * steps)
    if settings.target_macs is not None:
        return plan, thinrnn.Target(model, macs=settings.target_macs, steps=steps)
    return plan, thinrnn.Target(model, params=settings.target_params, steps=steps)


def build_training(
    settings: Settings, phase: str, shape: Shape, text: Text, device: torch.device
) -> tuple[Training, Plan | None]:
    """Return the training of a phase at its first step, and the plan of the gated model."""
    data = streams(text.train, settings.batch).to(device)
    model = build_model(settings, phase, shape, len(text.vocabulary)).to(device)
    plan, penalty = None, None
    if phase == "gated":
        bptt = min(settings.bptt, len(data) - 1)
        steps = settings.epochs * math.ceil((len(data) - 1) / bptt)
        plan, penalty = add_gates(settings, model, steps)
    return Training(settings, phase, model, penalty, data), plan
