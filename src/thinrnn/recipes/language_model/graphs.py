"""A whole training step as one CUDA graph: small steps are launch-bound otherwise.

The first steps run as they are (they are real steps, and warm the libraries up); then one is
captured and all later ones of the same shape are replayed. Whatever changes shapes or kernels
(`shrink_`, the start of averaging) needs a new `GraphedStep`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor], None]
WARMUP = 3


class GraphedStep:
    """Calls `step(x, y)`, from the fourth call on as a graph; `step` works on fixed tensors."""

    def __init__(self, step: Step, x: Tensor, y: Tensor) -> None:
        self.step = step
        self.x, self.y = x.clone(), y.clone()
        self.stream = torch.cuda.Stream()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.calls = 0

    def __call__(self, x: Tensor, y: Tensor) -> None:
        if x.shape != self.x.shape:
            self.step(x, y)
            return
        self.x.copy_(x)
        self.y.copy_(y)
        if self.graph is None and self.calls >= WARMUP:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.step(self.x, self.y)
        if self.graph is not None:
            self.graph.replay()
            return
        self.calls += 1
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.step(self.x, self.y)
        torch.cuda.current_stream().wait_stream(self.stream)
