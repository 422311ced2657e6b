"""The three models of a run, ready to be trained: dense, gated, control."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import thinrnn
from thinrnn.lab.models.model_folder import load_weights
from thinrnn.lab.recipes.pruning import ByL0, ByLasso, Pruning, ToTarget
from thinrnn.lab.recipes.squad.batches import Batches
from thinrnn.lab.recipes.squad.model import ENCODER, SIX, BiDAF
from thinrnn.lab.recipes.squad.prepare import Prepared
from thinrnn.lab.recipes.squad.selection import find_plan
from thinrnn.lab.recipes.squad.settings import SquadSettings
from thinrnn.lab.recipes.squad.training import Training
from thinrnn.plan import Plan


@dataclass(frozen=True)
class Shape:
    """Neurons of the encoder, forward and backward, and of the six LSTMs behind the attention."""

    hidden: tuple[int, ...]
    six: tuple[int, ...]

    def neurons(self, select: str) -> dict[str, int]:
        """Return the sizes of the LSTMs that a run may prune, by group."""
        sizes = dict(zip((*ENCODER, *SIX), (*self.hidden, *self.six), strict=True))
        names = SIX if select == "six" else (*ENCODER, *SIX)
        return {f"{name}.l0": sizes[name] for name in names}


def dense_shape(settings: SquadSettings) -> Shape:
    return Shape(settings.hidden, settings.six)


def shape_of(settings: SquadSettings, neurons: dict[str, int]) -> Shape:
    """Return the shape that is left, from neurons by group; other layers are as in the settings."""

    def left(names: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(neurons.get(f"{n}.l0", size) for n, size in zip(names, sizes, strict=True))

    return Shape(left(ENCODER, settings.hidden), left(SIX, settings.six))


def model_arguments(settings: SquadSettings, shape: Shape, data: Prepared) -> dict[str, Any]:
    """Return what `BiDAF` is called with, less what matters in training alone."""
    return {
        "rows": data.vocabulary.rows,
        "characters": data.vocabulary.character_rows,
        "vector": data.tables.glove.shape[1],
        "character": settings.character,
        "filters": settings.filters,
        "width": settings.width,
        "hidden": shape.hidden,
        "six": shape.six,
    }


def build_model(settings: SquadSettings, shape: Shape, data: Prepared) -> BiDAF:
    """Return a new model with weights from the run's seed."""
    torch.manual_seed(settings.seed)
    model = BiDAF(
        **model_arguments(settings, shape, data),
        dropout=settings.dropout,
        character_dropout=settings.character_dropout,
    )
    model.set_glove_(data.tables.glove)
    return model


def add_gates(settings: SquadSettings, model: BiDAF, plan: Plan) -> Pruning:
    """Put gates on a dense model; return what closes them."""
    if settings.lasso is not None:
        return ByLasso(model, plan, weight=settings.lasso, smallest=settings.lasso_zero)
    thinrnn.attach_(model, plan, gate=thinrnn.HardConcrete(mean=settings.gate_mean))
    if settings.l0 is not None:
        return ByL0(model, weight=settings.l0)
    steps = math.ceil(settings.target_time * settings.steps)
    return ToTarget(thinrnn.Target(model, params=settings.target_params, steps=steps))


def build_training(
    settings: SquadSettings,
    phase: str,
    shape: Shape,
    data: Prepared,
    batches: Batches,
    plan: Plan | None = None,
) -> tuple[Training, Plan | None]:
    """Return the training of a phase at its first step, and the plan of the gated model.

    The plan is found here unless it is given.
    """
    model = build_model(settings, shape, data)
    pruning = Pruning()
    if phase == "gated" and plan is None:
        plan = find_plan(model, settings.select)  # many small steps: faster on the CPU
    model.to(batches.device)
    if phase == "gated":
        assert plan is not None
        if settings.start_from:
            load_weights(model, Path(settings.start_from))
        pruning = add_gates(settings, model, plan)
    return Training(settings, phase, model, pruning, data, batches), plan
