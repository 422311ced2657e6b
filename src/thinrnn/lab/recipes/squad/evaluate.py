"""How well a model answers: its spans, EM, F1 and loss on a split."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinrnn.lab.recipes.squad.batches import Batches, by_length
from thinrnn.lab.recipes.squad.data import Split
from thinrnn.lab.recipes.squad.model import best_spans
from thinrnn.lab.recipes.squad.reader import FastReader
from thinrnn.lab.run.progress import Progress
from thinrnn.timing import torch_threads

WORDS = 4096  # words whose vectors are made at once
In = TypeVar("In")
Out = TypeVar("Out")
Arithmetic = Callable[[], contextlib.AbstractContextManager[None]]


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
            start, end = model(*batches.take(which))
        found[which] = torch.stack(best_spans(start, end), 1).cpu()
        answer = batches.answer[which.to(batches.device)]
        known = answer[:, 0] >= 0
        if known.any():
            total += float(span_loss(start[known], end[known], answer[known], "sum"))
            number += int(known.sum())
    model.train(was_training)
    return found, total / max(1, number)


def read_spans(
    reader: FastReader, split: Split, batches: Batches, *, batch: int, progress: Progress
) -> Tensor:
    """Return the likeliest spans (Q, 2) of all questions, by workers on all cores.

    Every word and every context is read once, whatever the number of questions about it.
    """
    with torch.inference_mode():
        pairs = zip(batches.rows.split(WORDS), batches.characters.split(WORDS), strict=True)
        words = torch.cat([reader.words(*pair) for pair in pairs])
    found = torch.zeros(len(split), 2, dtype=torch.long)

    def answer(which: Tensor) -> tuple[Tensor, Tensor]:
        context, question = batches.take_types(which)
        first, about = (x.to(batches.device) for x in distinct(split.paragraph[which]))
        logits = reader(words, context[first], question, about)
        return which, torch.stack(best_spans(*logits), 1).cpu()

    workers = torch.get_num_threads() if batches.device.type == "cpu" else 1
    progress.start("reading", len(split))
    done = 0
    with ThreadPoolExecutor(workers) as pool:
        for which, spans in work(answer, by_length(split.context_lengths, batch), pool):
            found[which] = spans
            done += len(which)
            progress.step(done)
    return found


def distinct(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return where each of the different values, in order, is first, and which of them one is.

    >>> distinct(torch.tensor([7, 7, 5, 7]))
    (tensor([2, 0]), tensor([1, 1, 0, 1]))
    """
    found, inverse = values.unique(return_inverse=True)
    places = torch.arange(len(values)).flip(0)
    first = torch.empty(len(found), dtype=torch.long).scatter_(0, inverse.flip(0), places)
    return first, inverse


def work(
    task: Callable[[In], Out], pieces: Iterable[In], pool: ThreadPoolExecutor
) -> Iterator[Out]:
    """Yield what a task gives for each piece, in their order; the task must hold no state.

    Each worker has a piece and one thread: the steps of an LSTM are too small to be shared by
    threads, which would wait for each other at every step.
    """

    def quiet(piece: In) -> Out:
        with torch.inference_mode():  # each thread has a mode of its own
            return task(piece)

    with torch_threads(1):
        yield from pool.map(quiet, pieces)
