"""Training steps as CUDA graphs, on a CUDA device."""

import gc

import pytest
import torch
from torch import Tensor

from thinrnn.lab.device.graphs import GraphedStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Counter:
    """Adds to a sum on the device; a cycle, as a phase and its graphs are one."""

    def __init__(self) -> None:
        self.total = torch.zeros(4, device="cuda")
        self.graph = GraphedStep(self.add, torch.ones(4, device="cuda"))

    def add(self, x: Tensor) -> None:
        containers = [[] for _ in range(3)]  # the collector runs after so many new ones
        self.total.add_(x * (len(containers) - 1))


def test_the_end_of_an_old_graph_does_not_break_a_capture():
    one = torch.ones(4, device="cuda")
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(5):
            counter = Counter()
            for _ in range(6):
                counter.graph(one)
            assert counter.total.tolist() == [12.0] * 4
            del counter
    finally:
        gc.set_threshold(*thresholds)
