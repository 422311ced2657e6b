"""A whole training step as one CUDA graph: small steps are launch-bound otherwise.

The first steps run as they are (they are real steps, and warm the libraries up); then one is
captured and all later ones of the same shape are replayed. Whatever changes shapes or kernels
(`shrink_`, the start of averaging) needs a new `GraphedStep`.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

Step = Callable[..., None]
WARMUP = 3


class GraphedStep:
    """Calls `step(*inputs)`, after `warmup` calls as a graph; `step` works on fixed tensors."""

    def __init__(self, step: Step, *inputs: Tensor, warmup: int = WARMUP) -> None:
        self.step = step
        self.warmup = warmup
        self.inputs = [tensor.clone() for tensor in inputs]
        self.stream = torch.cuda.Stream()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.calls = 0

    def __call__(self, *inputs: Tensor) -> None:
        if inputs[0].shape != self.inputs[0].shape:
            self.step(*inputs)
            return
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given)
        if self.graph is None and self.calls >= self.warmup:
            self.graph = torch.cuda.CUDAGraph()
            # on a stream of its own: graphs of one stream share scratch memory of the library
            with garbage_kept(), torch.cuda.graph(self.graph, stream=self.stream):
                self.step(*self.inputs)
        if self.graph is not None:
            self.graph.replay()
            return
        self.calls += 1
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.step(*self.inputs)
        torch.cuda.current_stream().wait_stream(self.stream)


@contextlib.contextmanager
def garbage_kept() -> Iterator[None]:
    """Pause the garbage collector: the end of an old graph would break a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
