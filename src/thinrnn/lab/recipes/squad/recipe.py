"""BiDAF on SQuAD as a recipe: what `lab/driver.py` needs to know about it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from thinrnn._surgery.save import Precision
from thinrnn.lab.device.arithmetic import arithmetic
from thinrnn.lab.recipes.choice import Choice
from thinrnn.lab.recipes.squad import prepare
from thinrnn.lab.recipes.squad.answering import answer, glove_for
from thinrnn.lab.recipes.squad.batches import Batches, Inputs, shuffled, usable
from thinrnn.lab.recipes.squad.calibrate import calibrate, calls_of
from thinrnn.lab.recipes.squad.evaluate import span_loss, spans
from thinrnn.lab.recipes.squad.export import export_model
from thinrnn.lab.recipes.squad.load import load_model, save_model, score_model, sizes
from thinrnn.lab.recipes.squad.metrics import em_and_f1
from thinrnn.lab.recipes.squad.model import ENCODER, SIX, BiDAF
from thinrnn.lab.recipes.squad.prepare import Prepared
from thinrnn.lab.recipes.squad.selection import find_plan
from thinrnn.lab.recipes.squad.settings import SquadSettings
from thinrnn.lab.run import InputError, RunFolder
from thinrnn.lab.run.metrics import Better, Measurement
from thinrnn.lab.run.progress import Progress
from thinrnn.plan import Plan

Settings = SquadSettings


class QuestionBatches:
    """Questions in batches of like length, in an order that depends on the seed alone.

    A batch is the inputs of the model and the answers (B, 2).
    """

    def __init__(self, settings: Settings, data: Prepared, device: torch.device) -> None:
        self.settings, self.rows = settings, settings.batch
        self.questions = questions_of(settings, data)
        self.train = Batches(data.train, data.tables, device)
        self.epoch_steps = len(self.questions) // settings.batch
        self.order: tuple[int, list[Tensor]] = (-1, [])

    def batch(self, step: int) -> tuple[Tensor, ...]:
        """Return the questions of a step."""
        s, (number, place) = self.settings, divmod(step, self.epoch_steps)
        if self.order[0] != number:
            generator = torch.Generator().manual_seed(1_000_003 * s.seed + number)
            lengths = self.train.context_lengths
            self.order = number, shuffled(self.questions, lengths, s.batch, generator)
        which = self.order[1][place]
        inputs = self.train.take(which, (s.context_step, s.question_step))
        device = self.train.device
        return *inputs, self.train.answer[which.to(device, non_blocking=True)]


class SquadRecipe:
    """BiDAF, which finds the answer to a question in a text."""

    name = "squad"
    settings = SquadSettings
    batch_dim = 0
    keeps_best = False  # no epoch is chosen by its score, since dev is what is reported
    times_in_onnx = False
    metrics: ClassVar[Mapping[str, Better]] = {
        "f1": "higher",
        "em": "higher",
        "valid_loss": "lower",
    }

    def choose(
        self, settings: Settings, device: torch.device
    ) -> tuple[Settings, tuple[Choice, ...]]:
        return settings, ()  # nothing is left open

    def load_data(self, settings: Settings, progress: Progress) -> Prepared:
        if not settings.data:
            raise InputError("no data: give --data DIR, a folder that holds squad/ and glove/.")
        data = prepare.prepare(
            Path(settings.data),
            more_than=settings.more_than,
            characters_more_than=settings.characters_more_than,
            held_out=settings.held_out,
            cache=Path(settings.cache) if settings.cache else None,
            progress=progress,
        )
        left = questions_of(settings, data)
        progress.line(
            f"train: {len(left):,} questions to train on, {len(data.train) - len(left):,} left out "
            f"(longer than {settings.most_context} or {settings.most_question} tokens, or unmapped)"
        )
        return data

    def check(self, settings: Settings, data: Prepared, phases: Sequence[str]) -> None:
        if "gated" in phases and settings.starts_from not in ("", "dense"):
            self.trained(Path(settings.starts_from), data)

    def steps(self, settings: Settings, data: Prepared, phase: str) -> tuple[int, int]:
        return settings.eval_every, settings.steps

    def batches(
        self,
        settings: Settings,
        data: Prepared,
        phase: str,
        device: torch.device,
        run: RunFolder,
        progress: Progress,
    ) -> QuestionBatches:
        return QuestionBatches(settings, data, device)

    def build(self, settings: Settings, data: Prepared) -> BiDAF:
        torch.manual_seed(settings.seed)
        model = BiDAF(
            **model_arguments(settings, data),
            dropout=settings.dropout,
            character_dropout=settings.character_dropout,
        )
        model.set_glove_(data.tables.glove)
        return model

    def find_plan(self, settings: Settings, model: nn.Module) -> Plan:
        assert isinstance(model, BiDAF)
        return find_plan(model, settings.select)

    def resized(self, settings: Settings, neurons: dict[str, int]) -> Settings:
        def left(names: tuple[str, ...], sizes: tuple[int, ...]) -> list[int]:
            return [neurons.get(f"{n}.l0", size) for n, size in zip(names, sizes, strict=True)]

        return settings.replaced(hidden=left(ENCODER, settings.hidden), six=left(SIX, settings.six))

    def trained(self, folder: Path, data: Prepared) -> nn.Module:
        return load_model(folder).model

    def set_dropout_(
        self, settings: Settings, model: nn.Module, phase: str, progress: float
    ) -> bool:
        assert isinstance(model, BiDAF)
        small = settings.small_dropout
        wanted = settings.dropout if phase == "dense" or small is None else small
        is_new = wanted != model.dropout.p
        model.set_dropout_(wanted)
        return is_new

    def step(
        self, settings: Settings, model: nn.Module, batch: tuple[Tensor, ...], state: Any
    ) -> tuple[Tensor, Any]:
        *inputs, answer = batch
        with arithmetic(settings.precision, answer.device):
            start, end = model(*inputs)
        return span_loss(start, end, answer), None

    def evaluate(
        self, settings: Settings, model: nn.Module, data: Prepared, *, final: bool = False
    ) -> list[Measurement]:
        device = next(model.parameters()).device
        precision = "float32" if final else settings.precision
        found, loss = spans(
            model,
            data.dev_batches(device),
            batch=settings.eval_batch,
            arithmetic=lambda: arithmetic(precision, device),
        )
        em, f1 = em_and_f1(data.dev.texts(found), data.dev.references)
        measured = {"f1": f1, "em": em, "valid_loss": loss}
        return [Measurement(name, value, self.metrics[name]) for name, value in measured.items()]

    def save(
        self,
        settings: Settings,
        model: nn.Module,
        data: Prepared,
        folder: Path,
        precision: Precision | None,
    ) -> None:
        save_model(model, folder, model_arguments(settings, data), data.vocabulary, precision)

    def onnx_calls(
        self, folders: dict[str, Path], settings: Settings, progress: Progress
    ) -> dict[str, tuple[Callable[..., Any], float]]:
        return {}  # benchmarks/reader_speed.py times readers in ONNX Runtime

    def texts_in(self, folder: Path, corpus: str) -> dict[str, str]:
        prepare.find_files(folder)
        return {"data": str(folder)}

    def find_texts(self, folder: Path) -> dict[str, Path]:
        prepare.find_files(folder, train=False)
        return {"data": folder}

    def corpus_of(self, fingerprint: str) -> None:
        return None  # `thinrnn data` does not download SQuAD and GloVe

    load = staticmethod(load_model)
    sizes = staticmethod(sizes)
    score = staticmethod(score_model)
    calibrate = staticmethod(calibrate)

    def calls(self, data: Prepared, count: int) -> list[Inputs]:
        return calls_of(data.train, data.tables, count)

    export = staticmethod(export_model)
    glove_for = staticmethod(glove_for)
    answer = staticmethod(answer)


RECIPE = SquadRecipe()


def model_arguments(settings: Settings, data: Prepared) -> dict[str, Any]:
    """Return what `BiDAF` is called with, except what matters in training alone."""
    names = ("character", "filters", "width", "hidden", "six")
    return {
        "rows": data.vocabulary.rows,
        "characters": data.vocabulary.character_rows,
        "vector": data.tables.glove.shape[1],
        **{name: getattr(settings, name) for name in names},
    }


def questions_of(settings: Settings, data: Prepared) -> Tensor:
    """Return the questions to train on; refuse fewer than a batch."""
    found = usable(
        data.train, most_context=settings.most_context, most_question=settings.most_question
    )
    if len(found) < settings.batch:
        raise InputError(
            f"{len(found)} questions are left to train on, fewer than batch={settings.batch}: "
            "raise most_context and most_question, or lower batch."
        )
    return found
