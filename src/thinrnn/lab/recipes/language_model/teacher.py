"""Soft targets: what a trained model says of every token of the training text.

    streams (L, B) ── teacher in eval, state carried ── its TOP likeliest next words and their
                                                         probabilities, (L, B, TOP)

They are computed once, so that a training step costs no more than without them.

A model that has read its training text many times is too sure of itself, and the small one would
learn that from it. So a teacher's logits are first divided by the temperature at which it predicts
the validation text best. Several teachers know more than one: the mean of their probabilities is
what they say together.
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
from thinrnn.lab.run.errors import InputError

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


class Together(nn.Module):
    """Language models that speak with one voice: the mean of their probabilities."""

    def __init__(self, models: Iterable[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        states = [None] * len(self.models) if state is None else state
        said = [model(tokens, one) for model, one in zip(self.models, states, strict=True)]
        log_p = (F.log_softmax(logits.float(), -1) for logits, _ in said)
        total = functools.reduce(torch.logaddexp, log_p)
        return total - math.log(len(said)), tuple(new for _, new in said)


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
    """Return what the teacher expects after each token of the streams (L, B)."""
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

    For words that are not among the teacher's likeliest the text speaks, as often as they occur:
    the small model would give them no probability otherwise.
    """
    log_p = F.log_softmax(logits.float(), -1)  # (T, B, V)
    words, shares = soft
    hard = -log_p.gather(-1, y.unsqueeze(-1)).squeeze(-1)  # (T, B)
    is_other = (words != y.unsqueeze(-1)).all(-1)
    said = is_other * hard - (shares * log_p.gather(-1, words)).sum(-1)
    return ((1 - part) * hard + part * said).mean()
