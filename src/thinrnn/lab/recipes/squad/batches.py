"""Questions with their contexts, side by side: of like length, padded with type 0."""

from collections.abc import Iterator

import torch
from torch import Tensor

from thinrnn.lab.recipes.squad.data import Split
from thinrnn.lab.recipes.squad.vocabulary import Tables

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
POOL = 40  # batches that are sorted by length together


class Batches:
    """A split and its tables on a device, from which any questions can be taken."""

    def __init__(self, split: Split, tables: Tables, device: torch.device) -> None:
        self.context_lengths = split.context_lengths  # on the CPU: they decide on shapes
        self.question_lengths = split.question_lengths
        self.rows = tables.rows.to(device).long()
        self.characters = tables.characters.to(device).long()
        paragraph = split.paragraph.long()
        self.context = split.context.to(device).long()
        self.context_from = split.context_bounds[paragraph].to(device).long()
        self.context_to = split.context_bounds[paragraph + 1].to(device).long()
        self.question = split.question.to(device).long()
        self.question_from = split.question_bounds[:-1].to(device).long()
        self.question_to = split.question_bounds[1:].to(device).long()
        self.answer = split.answer.to(device).long()
        self.device = device

    def take(self, questions: Tensor, steps: tuple[int, int] = (1, 1)) -> Inputs:
        """Return what the model reads for some questions (numbers on the CPU).

        Rows (B, T) and characters (B, T, L) of the contexts, rows (B, J) and characters (B, J, L)
        of the questions; the two lengths are rounded up to the steps.
        """
        context, question = self.take_types(questions, steps)
        rows, characters = self.rows, self.characters
        return rows[context], characters[context], rows[question], characters[question]

    def take_types(
        self, questions: Tensor, steps: tuple[int, int] = (1, 1)
    ) -> tuple[Tensor, Tensor]:
        """Return the same as types: contexts (B, T) and questions (B, J)."""
        there = questions.to(self.device, non_blocking=True)
        long = _rounded(self.context_lengths[questions], steps[0])
        short = _rounded(self.question_lengths[questions], steps[1])
        context = _padded(self.context, self.context_from, self.context_to, there, long)
        question = _padded(self.question, self.question_from, self.question_to, there, short)
        return context, question


def _rounded(lengths: Tensor, step: int) -> int:
    return -(-max(1, int(lengths.max())) // step) * step


def _padded(flat: Tensor, begin: Tensor, end: Tensor, which: Tensor, length: int) -> Tensor:
    """Return (B, length) types; behind the end of a text they are padding."""
    at = begin[which][:, None] + torch.arange(length, device=flat.device)
    inside = at < end[which][:, None]
    return torch.where(inside, flat[at.clamp(max=len(flat) - 1)], 0)


def usable(split: Split, *, most_context: int, most_question: int) -> Tensor:
    """Return the questions to train on: with an answer, and not too long."""
    fits = (split.context_lengths <= most_context) & (split.question_lengths <= most_question)
    readable = (split.question_lengths > 0) & (split.answer[:, 0] >= 0)
    return (fits & readable).nonzero().flatten()


def shuffled(
    questions: Tensor, lengths: Tensor, batch: int, generator: torch.Generator
) -> list[Tensor]:
    """Return batches of questions in random order; those of one batch have like lengths.

    Questions that do not fill the last batch wait for the next pass.
    """
    order = questions[torch.randperm(len(questions), generator=generator)]
    order = order[: max(1, len(order) // batch) * batch]
    pools = [pool[lengths[pool].argsort(stable=True)] for pool in order.split(batch * POOL)]
    batches = [part for pool in pools for part in pool.split(batch)]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


def by_length(lengths: Tensor, batch: int) -> Iterator[Tensor]:
    """Yield all questions, the longest contexts first, so that memory runs out at once if ever."""
    yield from lengths.argsort(descending=True, stable=True).split(batch)
