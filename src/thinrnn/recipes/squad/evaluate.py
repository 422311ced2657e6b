"""How well a model answers: its spans, EM, F1 and loss on a split."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinrnn.recipes.squad.batches import Batches, by_length
from thinrnn.recipes.squad.data import Split
from thinrnn.recipes.squad.metrics import em_and_f1
from thinrnn.recipes.squad.model import best_spans

Arithmetic = Callable[[], contextlib.AbstractContextManager[None]]


@dataclass(frozen=True)
class Score:
    """Exact match and F1 in per cent, and the mean loss of a question with a known span."""

    em: float
    f1: float
    loss: float


def span_loss(start: Tensor, end: Tensor, answer: Tensor, reduction: str = "mean") -> Tensor:
    """Return the cross entropy of first and last tokens (B, 2), summed."""
    first, last = answer.unbind(1)
    return F.cross_entropy(start, first, reduction=reduction) + F.cross_entropy(
        end, last, reduction=reduction
    )


@torch.no_grad()
def spans(
    model: nn.Module, batches: Batches, *, batch: int, arithmetic: Arithmetic
) -> tuple[Tensor, float]:
    """Return the likeliest spans (Q, 2) of all questions, and the mean loss."""
    lengths = batches.context_lengths
    found = torch.zeros(len(lengths), 2, dtype=torch.long)
    total, number = 0.0, 0
    was_training = model.training
    model.eval()
    for which in by_length(lengths, batch):
        with arithmetic():
            start, end = model(*batches.take(which).inputs)
        found[which] = torch.stack(best_spans(start, end), 1).cpu()
        answer = batches.answer[which.to(batches.device)]
        known = answer[:, 0] >= 0
        if known.any():
            total += float(span_loss(start[known], end[known], answer[known], "sum"))
            number += int(known.sum())
    model.train(was_training)
    return found, total / max(1, number)


def score(
    model: nn.Module,
    split: Split,
    batches: Batches,
    *,
    batch: int,
    arithmetic: Arithmetic = contextlib.nullcontext,
) -> Score:
    """Return how well a model answers the questions of a split."""
    found, loss = spans(model, batches, batch=batch, arithmetic=arithmetic)
    texts = [split.text(q, first, last) for q, (first, last) in enumerate(found.tolist())]
    em, f1 = em_and_f1(texts, split.references)
    return Score(em, f1, loss)
