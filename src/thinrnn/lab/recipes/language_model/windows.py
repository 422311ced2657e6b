"""The training text as windows, in the order in which they are read."""

from torch import Tensor

from thinrnn.lab.recipes.language_model.teacher import SoftTargets


class TextWindows:
    """Windows of streams of text (L, B), one after the other, with soft targets if there are any.

    A batch is tokens (T, B), the next tokens (T, B), and words and probabilities (T, B, TOP).
    """

    def __init__(self, streams: Tensor, bptt: int, soft: SoftTargets | None = None) -> None:
        self.streams, self.soft = streams, soft  # (L, B) int32
        self.rows = min(bptt, len(streams) - 1)
        self.epoch_steps = windows(len(streams), bptt)

    def batch(self, step: int) -> tuple[Tensor, ...]:
        """Return the window of a step."""
        start = step % self.epoch_steps * self.rows
        end = min(start + self.rows, len(self.streams) - 1)
        x, y = self.streams[start:end], self.streams[start + 1 : end + 1]
        soft = () if self.soft is None else self.soft.between(start, end)
        return x.long(), y.long(), *soft


def windows(length: int, bptt: int) -> int:
    """Return how many windows streams of this length have."""
    return -(-(length - 1) // min(bptt, length - 1))
