"""The three models of a run, ready to be trained: dense, gated, control."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import thinrnn
from thinrnn.lab.recipes.language_model.corpus import Text
from thinrnn.lab.recipes.language_model.data import streams
from thinrnn.lab.recipes.language_model.model import (
    Dropouts,
    LanguageModel,
    find_plan,
    has_one_module,
)
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.language_model.training import Training
from thinrnn.lab.recipes.pruning import ByL0, ByLasso, Pruning, ToTarget
from thinrnn.lab.run.errors import InputError
from thinrnn.plan import Plan


@dataclass(frozen=True)
class Shape:
    """Neurons of the embedding, of each layer and of the rare words' vectors."""

    embedding: int
    hidden: tuple[int, ...]
    rare: int


def dense_shape(settings: LanguageModelSettings) -> Shape:
    return Shape(settings.embedding, settings.hidden, settings.rare_size)


def shape_of(settings: LanguageModelSettings, neurons: dict[str, int]) -> Shape:
    """Return the shape that is left, from neurons by group; coupled groups are joined by "+"."""
    sizes = {part: size for name, size in neurons.items() for part in name.split("+")}
    one_module = has_one_module(settings.cell, settings.hidden, settings.locked)
    layer = "rnn.l{}" if one_module else "rnn.{}.l0"
    return Shape(
        sizes.get("embedding", settings.embedding),
        tuple(sizes.get(layer.format(i), size) for i, size in enumerate(settings.hidden)),
        sizes.get("rare", settings.rare_size),
    )


def model_arguments(
    settings: LanguageModelSettings, shape: Shape, vocabulary: int
) -> dict[str, Any]:
    """Return what `LanguageModel` is called with, less what matters in training alone."""
    return {
        "vocabulary": vocabulary,
        "cell": settings.cell,
        "depth": settings.depth,
        "embedding": shape.embedding,
        "hidden": shape.hidden,
        "tied": settings.tied,
        "rare": settings.rare,
        "rare_size": shape.rare,
        "locked": settings.locked,
    }


def dropouts(settings: LanguageModelSettings) -> Dropouts:
    """Return what the dense model drops in training."""
    p = settings.dropout
    return Dropouts(
        word=settings.word_dropout,
        input=p if settings.input_dropout is None else settings.input_dropout,
        layer=p if settings.layer_dropout is None else settings.layer_dropout,
        output=p,
        weight=settings.weight_dropout,
        recurrent=settings.recurrent_dropout,
    )


def build_model(settings: LanguageModelSettings, shape: Shape, vocabulary: int) -> LanguageModel:
    """Return a new model with weights from the run's seed."""
    torch.manual_seed(settings.seed)
    arguments = model_arguments(settings, shape, vocabulary)
    return LanguageModel(
        **arguments,
        dropouts=dropouts(settings),
        init_range=settings.init_range,
        rnn_init=settings.rnn_init,
    )


def add_gates(settings: LanguageModelSettings, model: nn.Module, plan: Plan, steps: int) -> Pruning:
    """Put gates on a dense model; return what closes them."""
    if settings.lasso is not None:
        return ByLasso(model, plan, weight=settings.lasso)
    thinrnn.attach_(model, plan, gate=thinrnn.HardConcrete(mean=settings.gate_mean))
    if settings.l0 is not None:
        return ByL0(model, weight=settings.l0)
    steps = math.ceil(settings.target_time * steps)
    params, macs = settings.target_params, settings.target_macs
    return ToTarget(thinrnn.Target(model, params=params, macs=macs, steps=steps))


def start_with_(model: LanguageModel, trained: nn.Module) -> None:
    """Give a new model the weights of a trained one of the same shape."""
    try:
        model.load_state_dict(trained.state_dict())
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(
            f"start_from holds a model of another shape ({reason}): set cell, embedding, hidden, "
            "tied, rare and rare_size as it was trained."
        ) from None


def build_training(
    settings: LanguageModelSettings,
    phase: str,
    shape: Shape,
    text: Text,
    device: torch.device,
    plan: Plan | None = None,
    trained: nn.Module | None = None,
    data: Tensor | None = None,
) -> tuple[Training, Plan | None]:
    """Return the training of a phase at its first step, and the plan of the gated model.

    The plan is found here unless it is given. A gated model starts with the weights of a `trained`
    one. Streams to learn from, other than the training text, are the `data`.
    """
    real = streams(text.train, settings.batch)
    if data is None:
        data = real.to(device)
    model = build_model(settings, shape, len(text.vocabulary)).to(device)
    pruning = Pruning()
    if phase == "gated":
        if trained is not None:
            start_with_(model, trained)
        if plan is None:
            plan = find_plan(model)
        # By the settings, not the data: a model that is only looked at is built without that.
        last = len(real) * (1 + settings.written) - 1
        steps = settings.passes(phase) * math.ceil(last / min(settings.bptt, last))
        pruning = add_gates(settings, model, plan, steps)
    return Training(settings, phase, model, pruning, data), plan
