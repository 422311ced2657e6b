"""The language model as a recipe: what `lab/driver.py` needs to know about it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinrnn._surgery.save import Precision
from thinrnn.lab.device.arithmetic import arithmetic
from thinrnn.lab.device.padded import Padded
from thinrnn.lab.recipes.choice import Choice
from thinrnn.lab.recipes.language_model import corpus, export
from thinrnn.lab.recipes.language_model.calibrate import calibrate, spread
from thinrnn.lab.recipes.language_model.choose import choose
from thinrnn.lab.recipes.language_model.corpus import Text, load_text
from thinrnn.lab.recipes.language_model.data import EOS, streams
from thinrnn.lab.recipes.language_model.evaluate import mean_loss, perplexity
from thinrnn.lab.recipes.language_model.generate import continue_text
from thinrnn.lab.recipes.language_model.load import (
    load_model,
    save_model,
    score_model,
    sizes,
)
from thinrnn.lab.recipes.language_model.model import (
    Dropouts,
    LanguageModel,
    has_one_module,
)
from thinrnn.lab.recipes.language_model.model import find_plan as plan_of
from thinrnn.lab.recipes.language_model.onnx_model import measure_on
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.language_model.teacher import (
    distilled_loss,
    load_teacher,
    prepare_lesson,
)
from thinrnn.lab.recipes.language_model.untrained import build_dense, sizes_of
from thinrnn.lab.recipes.language_model.windows import TextWindows, windows
from thinrnn.lab.recipes.phase import start_with_
from thinrnn.lab.run import InputError, RunFolder
from thinrnn.lab.run.metrics import Better, Measurement
from thinrnn.lab.run.progress import Progress
from thinrnn.plan import Plan

Settings = LanguageModelSettings


class LanguageModelRecipe:
    """Recurrent language models on text, by words or characters."""

    name = "language_model"
    settings = LanguageModelSettings
    batch_dim = 1
    keeps_best = True
    times_in_onnx = True
    metrics: ClassVar[Mapping[str, Better]] = {
        "valid_perplexity": "lower",
        "test_perplexity": "lower",
        "valid_loss": "lower",
    }

    def choose(
        self, settings: Settings, device: torch.device
    ) -> tuple[Settings, tuple[Choice, ...]]:
        return choose(self, settings, device)

    def load_data(self, settings: Settings, progress: Progress) -> Text:
        return load_text(settings)

    def check(self, settings: Settings, data: Text, phases: Sequence[str]) -> None:
        streams(data.train, settings.batch)  # refuses too little text
        if settings.rare >= len(data.vocabulary):
            raise InputError(
                f"rare={settings.rare} is too large for a vocabulary of {len(data.vocabulary)} "
                "words: set a smaller number."
            )
        if settings.distill and not {"gated", "control"}.isdisjoint(phases):
            for name in settings.teachers:
                if name != "dense":
                    load_teacher(Path(name), data)
        if "gated" in phases and settings.starts_from not in ("", "dense"):
            given = load_teacher(Path(settings.starts_from), data)
            start_with_(self.build(settings, data), given)

    def steps(self, settings: Settings, data: Text, phase: str) -> tuple[int, int]:
        texts = 1 if phase == "dense" else 1 + settings.written
        rows = len(data.train) // settings.batch  # of the streams
        epoch = windows(rows * texts, settings.bptt)
        return epoch, epoch * settings.passes(phase)

    def batches(
        self,
        settings: Settings,
        data: Text,
        phase: str,
        device: torch.device,
        run: RunFolder,
        progress: Progress,
    ) -> TextWindows:
        real = streams(data.train, settings.batch).to(device)
        if phase == "dense" or not settings.distill:
            return TextWindows(real, settings.bptt)
        tokens, soft = prepare_lesson(settings, data, real, run, progress)
        return TextWindows(tokens, settings.bptt, soft)

    def build(self, settings: Settings, data: Text) -> LanguageModel:
        counts = data.counts() if settings.init_bias == "frequency" else None
        return build_model(settings, len(data.vocabulary), counts)

    def find_plan(self, settings: Settings, model: nn.Module) -> Plan:
        assert isinstance(model, LanguageModel)
        return plan_of(model)

    def resized(self, settings: Settings, neurons: dict[str, int]) -> Settings:
        # coupled groups are joined by "+"
        left = {part: size for name, size in neurons.items() for part in name.split("+")}
        one_module = has_one_module(settings.cell, settings.hidden, settings.locked)
        layer = "rnn.l{}" if one_module else "rnn.{}.l0"
        small = settings.replaced(
            embedding=left.get("embedding", settings.embedding),
            hidden=[left.get(layer.format(i), n) for i, n in enumerate(settings.hidden)],
            rare_size=left.get("rare", settings.rare_size),
        )
        return small.at_width(max(small.hidden)) if settings.lr_width else small

    def trained(self, folder: Path, data: Text) -> nn.Module:
        return load_teacher(folder, data)

    def set_dropout_(
        self, settings: Settings, model: nn.Module, phase: str, progress: float
    ) -> bool:
        assert isinstance(model, LanguageModel)
        small, part = settings.small_dropout, 0.0 if phase == "dense" else progress
        factor = 1.0 if small is None else small / max(settings.dropout, 1e-9)
        wanted = dropouts(settings).scaled(1 + (factor - 1) * part)
        is_new = wanted != model.dropouts
        if is_new:
            model.set_dropouts(wanted)
        return is_new

    def step(
        self, settings: Settings, model: nn.Module, batch: tuple[Tensor, ...], state: Any
    ) -> tuple[Tensor, Any]:
        x, y, *soft = batch  # (T, B), (T, B); soft targets (T, B, TOP)
        with arithmetic(settings.precision, x.device), Padded():
            logits, state = model(x, state)
            if soft:
                words, shares = soft
                return distilled_loss(logits, y, (words, shares), settings.distill), state
            return F.cross_entropy(logits.flatten(0, 1), y.flatten()), state

    def evaluate(
        self, settings: Settings, model: nn.Module, data: Text, *, final: bool = False
    ) -> list[Measurement]:
        start = data.vocabulary.number(EOS)
        batch = settings.eval_batch if final else settings.valid_batch or settings.eval_batch
        loss = mean_loss(model, data.valid, batch=batch, start=start)
        found = {"valid_perplexity": perplexity(loss), "valid_loss": loss}
        if final and data.test is not None:  # the test text is read here and nowhere else
            found["test_perplexity"] = perplexity(
                mean_loss(model, data.test, batch=batch, start=start)
            )
        return [Measurement(name, value, self.metrics[name]) for name, value in found.items()]

    def save(
        self,
        settings: Settings,
        model: nn.Module,
        data: Text,
        folder: Path,
        precision: Precision | None,
    ) -> None:
        arguments = model_arguments(settings, len(data.vocabulary))
        save_model(model, folder, arguments, data.vocabulary, precision)

    load = staticmethod(load_model)
    sizes = staticmethod(sizes)
    onnx_calls = staticmethod(export.onnx_calls)
    score = staticmethod(score_model)
    export_c = staticmethod(export.export_c_model)
    export_edge = staticmethod(export.export_edge_model)
    calibrate = staticmethod(calibrate)

    def calls(self, data: Text, count: int) -> list[Tensor]:
        return spread(data.train, count)

    export = staticmethod(export.export_model)
    texts_in = staticmethod(corpus.texts_in)
    find_texts = staticmethod(corpus.find_texts)
    corpus_of = staticmethod(corpus.corpus_of)
    continue_text = staticmethod(continue_text)
    measure_on = staticmethod(measure_on)
    build_dense = staticmethod(build_dense)
    sizes_of = staticmethod(sizes_of)


RECIPE = LanguageModelRecipe()


def model_arguments(settings: Settings, vocabulary: int) -> dict[str, Any]:
    """Return what `LanguageModel` is called with, except what matters in training alone."""
    names = ("cell", "depth", "embedding", "hidden", "tied", "rare", "rare_size", "locked")
    return {"vocabulary": vocabulary, **{name: getattr(settings, name) for name in names}}


def dropouts(settings: Settings) -> Dropouts:
    """Return the dropout of the dense model in training."""
    p = settings.dropout
    return Dropouts(
        word=settings.word_dropout,
        input=p if settings.input_dropout is None else settings.input_dropout,
        layer=p if settings.layer_dropout is None else settings.layer_dropout,
        output=p,
        weight=settings.weight_dropout,
        recurrent=settings.recurrent_dropout,
    )


def build_model(settings: Settings, vocabulary: int, counts: Tensor | None = None) -> LanguageModel:
    """Return a new model with weights from the run's seed."""
    torch.manual_seed(settings.seed)
    return LanguageModel(
        **model_arguments(settings, vocabulary),
        dropouts=dropouts(settings),
        init_range=settings.init_range,
        rnn_init=settings.rnn_init,
        counts=counts,
    )
