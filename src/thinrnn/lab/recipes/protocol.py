"""What the driver, `lab/driver.py`, needs of an experiment: data, model, step, evaluation.

A recipe is an object without state. `S` are its settings, `D` its data.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from thinrnn._surgery.save import Precision
from thinrnn.lab.data.corpora import Corpus
from thinrnn.lab.recipes.choice import Choice
from thinrnn.lab.recipes.settings import TrainingSettings
from thinrnn.lab.run import RunFolder
from thinrnn.lab.run.metrics import Better, Measurement
from thinrnn.lab.run.progress import Progress
from thinrnn.onnx import Export
from thinrnn.plan import Plan

S = TypeVar("S", bound=TrainingSettings)
D = TypeVar("D", bound="RecipeData")
Inputs = Tensor | tuple[Tensor, ...]


class RecipeData(Protocol):
    """The data of a run."""

    def facts(self) -> dict[str, Any]:
        """Return what config.json keeps; a run goes on only where its `sha256` is the same."""

    def example(self) -> Inputs:
        """Return some real inputs, on which the small model is verified."""


class TrainingBatches(Protocol):
    """The training data of a phase, in an order that only the settings decide."""

    rows: int  # length of the first tensor of a whole batch; only whole ones run as CUDA graphs
    epoch_steps: int  # batches in a pass over the data

    def batch(self, step: int) -> tuple[Tensor, ...]:
        """Return what a step of the phase reads."""


class LoadedModel(Protocol):
    """A model from a folder, ready to be used."""

    @property
    def model(self) -> nn.Module: ...

    def example(self, batch: int, steps: int) -> Any:
        """Return inputs of the given size."""


class Recipe(Protocol[S, D]):
    """An experiment: everything that differs from one to another."""

    name: str
    settings: type[S]
    batch_dim: int  # along which the sequences of batches and states lie
    keeps_best: bool  # of the epochs of the final size; False keeps the last one
    times_in_onnx: bool  # whether `onnx_calls` returns any

    @property
    def metrics(self) -> Mapping[str, Better]:
        """What `evaluate` measures and which way is better; the first is the headline."""

    # Data
    def choose(self, settings: S, device: torch.device) -> tuple[S, tuple[Choice, ...]]:
        """Return settings with nothing left open, and what has been chosen from the data."""

    def load_data(self, settings: S, progress: Progress) -> D:
        """Return the data that the settings name."""

    def check(self, settings: S, data: D, phases: Sequence[str]) -> None:
        """Refuse, before a run begins, models that do not fit the data."""

    def steps(self, settings: S, data: D, phase: str) -> tuple[int, int]:
        """Return how many steps an epoch of a phase has, and the whole phase."""

    def batches(
        self,
        settings: S,
        data: D,
        phase: str,
        device: torch.device,
        run: RunFolder,
        progress: Progress,
    ) -> TrainingBatches:
        """Return the training data of a phase; gated and control share theirs."""

    # Model
    def build(self, settings: S, data: D) -> nn.Module:
        """Return a new dense model with weights from the seed."""

    def find_plan(self, settings: S, model: nn.Module) -> Plan:
        """Return the groups that may be pruned."""

    def resized(self, settings: S, neurons: dict[str, int]) -> S:
        """Return settings whose model has the neurons that are left, by group."""

    def trained(self, folder: Path, data: D) -> nn.Module:
        """Return a model to start from, if it fits the data."""

    def set_dropout_(self, settings: S, model: nn.Module, phase: str, progress: float) -> bool:
        """Set the dropout for a phase whose gates have closed so far (0 to 1); True if changed."""

    # Training
    def step(
        self, settings: S, model: nn.Module, batch: tuple[Tensor, ...], state: Any
    ) -> tuple[Tensor, Any]:
        """Return the loss of a batch, and the state to carry to the next one, if any."""

    def evaluate(
        self, settings: S, model: nn.Module, data: D, *, final: bool = False
    ) -> list[Measurement]:
        """Measure a model; the first metric is the one to compare by."""

    # Folders
    def save(
        self, settings: S, model: nn.Module, data: D, folder: Path, precision: Precision | None
    ) -> None:
        """Write a model so that `load` needs nothing else; only small ones have a precision."""

    def load(self, folder: Path) -> LoadedModel:
        """Return the model of a folder."""

    def sizes(self, model: nn.Module) -> dict[str, int]:
        """Return weights, parameters, mult-adds per step and bytes of a model on the CPU."""

    def onnx_calls(
        self, folders: dict[str, Path], settings: S, progress: Progress
    ) -> dict[str, tuple[Callable[..., Any], float]]:
        """Return models in ONNX Runtime, each with its difference to PyTorch."""

    # Other commands
    def score(
        self,
        folder: Path,
        files: dict[str, Path],
        *,
        config: dict[str, Any] | None,
        progress: Progress,
    ) -> dict[str, Any]:
        """Measure the model of a folder on files, or on the data of its run."""

    def calibrate(
        self,
        folder: Path,
        data: Path | None,
        *,
        config: dict[str, Any] | None,
        calls: int,
        progress: Progress,
    ) -> tuple[nn.Module, Plan, Sequence[Any]]:
        """Return the model of a folder, its groups, and calls with training data.

        The data is that of a folder or, without one, that of the run.
        """

    def calls(self, data: D, count: int) -> Sequence[Any]:
        """Return calls with training data that has been loaded, to calibrate on."""

    def export(
        self,
        folder: Path,
        path: Path,
        *,
        streaming: bool = False,
        metadata: dict[str, Any] | None = None,
    ) -> Export:
        """Write the model of a folder as ONNX."""

    def texts_in(self, folder: Path, corpus: str) -> dict[str, str]:
        """Return the settings that name the data in a folder."""

    def find_texts(self, folder: Path) -> dict[str, Path]:
        """Return the files in a folder that `score` measures on."""

    def corpus_of(self, fingerprint: str) -> Corpus | None:
        """Return the public corpus that has this fingerprint, if it is one."""
