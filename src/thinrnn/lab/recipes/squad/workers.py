"""Work on several cores: each worker has its own piece and one thread.

The steps of an LSTM are too small to be shared by threads, which would wait for each other at every
step; whole pieces of a batch are not.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

In = TypeVar("In")
Out = TypeVar("Out")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let operators of torch use one thread each."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def work(
    task: Callable[[In], Out], pieces: Iterable[In], pool: ThreadPoolExecutor
) -> Iterator[Out]:
    """Yield what a task gives for each piece, in their order; the task must hold no state."""

    def quiet(piece: In) -> Out:
        with torch.inference_mode():  # each thread has a mode of its own
            return task(piece)

    with one_thread():
        yield from pool.map(quiet, pieces)


class Shared:
    """A reader whose batches are shared by several workers."""

    def __init__(self, read: Callable[..., tuple[Tensor, Tensor]], workers: int) -> None:
        self.read, self.workers = read, workers
        self.pool = ThreadPoolExecutor(workers)  # threads that stay know what they have compiled

    def __call__(self, words: Tensor, *texts: Tensor) -> tuple[Tensor, Tensor]:
        if self.workers == 1 or len(texts[0]) == 1:  # nothing to share
            with one_thread():
                return self.read(words, *texts)
        parts = zip(*(text.chunk(self.workers) for text in texts), strict=True)
        found = list(work(lambda part: self.read(words, *part), parts, self.pool))
        start, end = (torch.cat(side) for side in zip(*found, strict=True))
        return start, end
