"""Soft targets: what a trained model says of every token of the training text.

    streams (L, B) ── teacher in eval, state carried ── its TOP likeliest next words and their
                                                         probabilities, (L - 1, B, TOP)

They are computed once, so that a training step costs no more than without them.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinrnn.recipes.language_model.corpus import Text
from thinrnn.recipes.language_model.load import load_model
from thinrnn.run.errors import InputError

TOP = 64
WINDOW = 32


@dataclass(frozen=True)
class SoftTargets:
    """For each place of the streams, the likeliest next words and their probabilities."""

    words: Tensor  # (L - 1, B, TOP) int16, or int32 if there are more words than that holds
    shares: Tensor  # (L - 1, B, TOP); what is left to 1 belongs to all other words

    def between(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """Return words and probabilities of a window."""
        return self.words[start:end].long(), self.shares[start:end].float()


@torch.no_grad()
def soft_targets(teacher: nn.Module, streams: Tensor) -> SoftTargets:
    """Return what the teacher expects after each token of the streams (L, B)."""
    words, shares = [], []
    state = None
    teacher.eval()
    for place in range(0, len(streams) - 1, WINDOW):
        end = min(place + WINDOW, len(streams) - 1)
        logits, state = teacher(streams[place:end].long(), state)
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
