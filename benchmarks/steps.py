"""What the benchmarks of training steps share: a step as a CUDA graph, and its time."""

import time
from collections.abc import Callable
from typing import Any

import torch

Call = Callable[[], Any]


def in_graph(step: Call) -> Call:
    """Return the step as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # On a stream of its own: graphs of one stream share the memory that products work in.
    with torch.cuda.graph(graph, stream=side):
        step()
    return graph.replay


def milliseconds(step: Call, device: str) -> float:
    """Return how long one call takes, the device's part included."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start)
