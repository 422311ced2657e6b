"""Soft targets: the probabilities that a trained model, the teacher, gives to the next tokens.

    streams (L, B) ── teacher in eval, state carried ── its TOP likeliest next words and their
                                                         probabilities, (L, B, TOP)

They are computed once, so that a training step costs no more than without them.

A model that has read its training text many times is too confident, and the small one would learn
that from it. So a teacher's logits are first divided by the temperature at which it predicts the
validation text best. Several teachers form an ensemble: the mean of their probabilities counts.
"""

import bisect
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinrnn.lab.recipes.language_model.corpus import Text
from thinrnn.lab.recipes.language_model.data import EOS
from thinrnn.lab.recipes.language_model.evaluate import mean_loss
from thinrnn.lab.recipes.language_model.load import load_model
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.language_model.written import in_shares, with_written
from thinrnn.lab.run import InputError, RunFolder
from thinrnn.lab.run.progress import Progress

TOP = 64
WINDOW = 32
MOST = 4096  # tokens at once: their logits take some hundred megabytes
TEMPERATURES = tuple(0.8 + 0.05 * i for i in range(15))  # up to 1.5


class Calibrated(nn.Module):
    """A language model whose logits are divided by a temperature."""

    def __init__(self, model: nn.Module, temperature: float) -> None:
        super().__init__()
        self.model, self.temperature = model, temperature

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        logits, state = self.model(tokens, state)
        return logits / self.temperature, state


class Ensemble(nn.Module):
    """Several language models; their output is the logarithm of the mean probability."""

    def __init__(self, models: Iterable[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        states = [None] * len(self.models) if state is None else state
        found = [model(tokens, one) for model, one in zip(self.models, states, strict=True)]
        log_p = (F.log_softmax(logits.float(), -1) for logits, _ in found)
        total = functools.reduce(torch.logaddexp, log_p)
        return total - math.log(len(found)), tuple(new for _, new in found)


def calibrated(teacher: nn.Module, text: Text, *, batch: int) -> Calibrated:
    """Return the teacher at the temperature that suits the validation text best."""
    start = text.vocabulary.number(EOS)
    models = [Calibrated(teacher, temperature) for temperature in TEMPERATURES]

    @functools.cache
    def loss(i: int) -> float:
        return mean_loss(models[i], text.valid, batch=batch, start=start)

    # It falls, then rises: cross entropy is convex in 1 / temperature.
    places = range(len(models) - 1)
    return models[bisect.bisect_left(places, True, key=lambda i: loss(i + 1) > loss(i))]


@dataclass(frozen=True)
class SoftTargets:
    """For each place of the streams, the likeliest next words and their probabilities."""

    words: Tensor  # (L, B, TOP) int16, or int32 if there are more words than that holds
    shares: Tensor  # (L, B, TOP); what is left to 1 belongs to all other words

    def between(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """Return words and probabilities of a window."""
        return self.words[start:end].long(), self.shares[start:end].float()


@torch.no_grad()
def soft_targets(teacher: nn.Module, streams: Tensor) -> SoftTargets:
    """Return the teacher's predictions after each token of the streams (L, B)."""
    words, shares = [], []
    state = None
    teacher.eval()
    for x in streams.split(max(1, min(WINDOW, MOST // streams.shape[1]))):
        logits, state = teacher(x.long(), state)
        top = F.softmax(logits.float(), -1).topk(min(TOP, logits.shape[-1]), dim=-1)
        is_short = logits.shape[-1] <= torch.iinfo(torch.int16).max
        words.append(top.indices.to(torch.int16 if is_short else torch.int32))
        shares.append(top.values.half())
    return SoftTargets(torch.cat(words), torch.cat(shares))


def prepare_lesson(
    settings: LanguageModelSettings, text: Text, real: Tensor, run: RunFolder, progress: Progress
) -> tuple[Tensor, SoftTargets]:
    """Return streams (L, B) to learn from, and the teacher's predictions for them.

    The teacher is the run's own dense model, another, or an ensemble. With `written` it also
    writes some of the text.
    """
    teachers = []
    for name in settings.teachers:
        folder = run.path / "dense" if name == "dense" else Path(name)
        model = load_teacher(folder, text).to(real.device)
        teachers.append(calibrated(model, text, batch=settings.eval_batch))
        progress.line(f"teacher {name}: temperature {teachers[-1].temperature:.2f}")
    teacher = teachers[0]
    if len(teachers) > 1:
        teacher = calibrated(Ensemble(teachers), text, batch=settings.eval_batch)
        progress.line(f"ensemble of teachers: temperature {teacher.temperature:.2f}")
    if not settings.written:
        progress.line("the teacher reads the training text")
        return real, soft_targets(teacher, real)
    texts = with_written(real, teacher, settings, run, progress)  # (L, n, B)
    progress.line("the teacher reads the training text and what it wrote")
    soft = soft_targets(teacher, texts.flatten(1))  # all texts side by side
    targets = (part.unflatten(1, texts.shape[1:]) for part in (soft.words, soft.shares))
    return in_shares(texts), SoftTargets(*map(in_shares, targets))


def load_teacher(folder: Path, text: Text) -> nn.Module:
    """Return the model of a folder, if it knows the same words."""
    loaded = load_model(folder)
    if loaded.vocabulary.tokens != text.vocabulary.tokens:
        raise InputError(
            f"the model in {folder} has another vocabulary than the training text: "
            "train it on the same text."
        )
    return loaded.model


def distilled_loss(logits: Tensor, y: Tensor, soft: tuple[Tensor, Tensor], part: float) -> Tensor:
    """Return the cross entropy with the text, and by `part` that with the teacher instead.

    A word that is not among the teacher's likeliest counts as in the text: otherwise the small
    model would learn to give it no probability.
    """
    log_p = F.log_softmax(logits.float(), -1)  # (T, B, V)
    words, shares = soft
    hard = -log_p.gather(-1, y.unsqueeze(-1)).squeeze(-1)  # (T, B)
    is_other = (words != y.unsqueeze(-1)).all(-1)
    soft_loss = is_other * hard - (shares * log_p.gather(-1, words)).sum(-1)
    return ((1 - part) * hard + part * soft_loss).mean()
