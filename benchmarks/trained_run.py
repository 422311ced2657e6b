"""A run with a dense model, and what prunes, trains and measures that model again."""

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import thinrnn
from thinrnn._calibration.prune import Calibration
from thinrnn._gates.attach import is_attached
from thinrnn._model.copying import copy_module
from thinrnn._model.tree import map_tensors
from thinrnn.errors import TargetError
from thinrnn.lab import recipes
from thinrnn.lab.recipes.optimizer import make_optimizer
from thinrnn.lab.recipes.phase import known_plan, start_with_
from thinrnn.lab.recipes.settings import changed
from thinrnn.lab.run import RunFolder
from thinrnn.lab.run.progress import Silent
from tools.results.paths import without_paths


class TrainedRun:
    """The dense model of a run of any recipe.

    Args:
        folder: The run.
        calls: Calibration batches.
        changes: Settings for the trainings here, as in "dropout=0.35"; others are the run's.
    """

    def __init__(self, folder: Path, *, calls: int, changes: list[str]) -> None:
        torch.set_float32_matmul_precision("high")
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.run = run = RunFolder(folder)
        self.recipe = recipes.recipe(run.config["recipe"])
        self.settings = changed(self.recipe.settings(**run.config["settings"]), changes)
        progress = Silent()
        self.data = self.recipe.load_data(self.settings, progress)
        self.batches = self.recipe.batches(self.settings, self.data, "dense", device, run, progress)
        self.epoch = self.batches.epoch_steps
        model = self.recipe.build(self.settings, self.data)
        start_with_(model, self.recipe.trained(run.path / "dense", self.data))
        if changes:
            self.plan = self.recipe.find_plan(self.settings, model)
        else:
            self.plan = known_plan(self.recipe, self.settings, self.data, run)
        self.model = model.to(device)
        self.calls = map_tensors(list(self.recipe.calls(self.data, calls)), lambda x: x.to(device))
        self.calibration = Calibration(self.model, self.calls, plan=self.plan)
        self.metric, self.better = next(iter(self.recipe.metrics.items()))
        self.device, self.full = device, self.macs(self.model)

    def facts(self) -> dict[str, Any]:
        """Return what a results file says about the model."""
        config = self.run.config
        facts = {name: config[name] for name in ("recipe", "preset", "command")}
        facts["command"] = without_paths(facts["command"])
        return facts | {"macs": self.full, "metric": self.metric, "better": self.better}

    def measure(self, model: nn.Module) -> float:
        """Return the headline metric."""
        return self.recipe.evaluate(self.settings, model, self.data)[0].value

    def macs(self, model: nn.Module) -> int:
        return self.recipe.sizes(copy_module(model).cpu())["macs"]

    def loss(self, output: Any, call: Any) -> Tensor:
        """Return a loss of calibration calls: that of the outputs' own best guess where unlabelled.

        Language models predict the next token of the call; readers the span that they found.
        """
        logits = output[0] if isinstance(output, tuple) else output
        if logits.dim() == 3:  # (T, B, V)
            return nn.functional.cross_entropy(logits[:-1].flatten(0, 1), call[1:].flatten())
        spans = ((side, side.argmax(-1).detach()) for side in output)
        return sum(nn.functional.cross_entropy(side, best) for side, best in spans)

    def reachable(self, sizes: Sequence[float]) -> list[float]:
        """Return the parts of the mult-adds that pruning can reach, and name the others."""
        errors = self.calibration.errors("magnitude")
        found = []
        for macs in sizes:
            try:
                self.calibration.chosen(errors, params=None, macs=macs, keep={})
                found.append(macs)
            except TargetError as error:
                print(f"left out: {error}", flush=True)
        return found

    def best(self, values: Sequence[float]) -> float:
        """Return the best of some values of the headline metric."""
        return min(values) if self.better == "lower" else max(values)

    def train_(self, model: nn.Module, steps: int, rate: float) -> nn.Module:
        """Train a plain model for some steps at a rate that falls from a part of the run's to 0."""
        training = Training(self, model)
        for step in range(steps):
            training.step(rate * 0.5 * (1 + math.cos(math.pi * step / steps)))
        return model.eval()

    def gated(
        self,
        sizes: Sequence[float],
        steps: int,
        rate: float,
        start: Mapping[str, Tensor] | None = None,
    ) -> Iterator[tuple[float, int, nn.Module]]:
        """Train with gates; yield size, steps so far and a small model at each size.

        The sizes share the steps.
        """
        model = thinrnn.attach_(copy_module(self.model), self.plan)
        steps_each = max(1, steps // len(sizes))
        target = thinrnn.Target(model, macs=list(sizes), steps=steps_each, start=start)
        training = Training(self, model)
        for done in range(1, target.calls + 1):
            training.step(rate)
            target.step()
            if target.reached:
                yield target.reached, done, thinrnn.compact(model)


class Training:
    """Steps of training as the run did them, at a part of its learning rate."""

    def __init__(self, run: TrainedRun, model: nn.Module) -> None:
        self.run, self.model = run, model.train()
        self.optimizer = make_optimizer(run.settings, model)
        self.state: Any = None
        self.steps = 0
        removed = 0.0 if is_attached(model) else 1 - run.macs(model) / run.full
        run.recipe.set_dropout_(run.settings, model, "gated", removed)

    def step(self, rate: float) -> None:
        """Take the next step at a part of the run's learning rate."""
        settings = self.run.settings
        self.optimizer.set_lr(rate * settings.lr)
        self.optimizer.zero_grad(set_to_none=True)
        if self.steps % self.run.epoch == 0:
            self.state = None
        batch = self.run.batches.batch(self.steps)
        loss, state = self.run.recipe.step(settings, self.model, batch, self.state)
        loss.backward()
        if settings.clip:
            nn.utils.clip_grad_norm_(self.optimizer.weights, settings.clip)
        self.optimizer.step()
        self.state = map_tensors(state, Tensor.detach)
        self.steps += 1


def going_on(
    options: argparse.Namespace, dense: float, same: Sequence[str], found: dict[str, Any]
) -> dict[str, Any]:
    """Return what an earlier call wrote to `options.out`, or `found` where there was none.

    A file of another model, by its headline metric, or of other options (`same`) is refused.
    """
    if not options.out.exists():
        return found
    record = json.loads(options.out.read_bytes())
    given = json.loads(json.dumps(vars(options), default=str))
    is_same = all(record["settings"].get(name) == given[name] for name in same)
    if not is_same or abs(record["dense"] / dense - 1) > 1e-3:
        raise SystemExit(f"{options.out} is of another model or training: choose another --out.")
    return {name: record[name] for name in found}
