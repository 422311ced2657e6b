"""Mean loss and penalty of the steps of a round, and since the last log, summed on the device."""

from typing import Any

import torch
from torch import Tensor


class Means:
    """`add` costs a step next to nothing; only reading waits for the device."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(2, 2, device=device)  # of the round and of the log; loss, penalty
        self.steps = [0, 0]

    def add(self, loss: Tensor, penalty: Tensor) -> None:
        """Take up a step; may be captured in a CUDA graph, unlike `count`."""
        self.sums += torch.stack([loss.detach().float(), penalty.detach().float()])

    def count(self) -> None:
        """A step was added."""
        self.steps = [number + 1 for number in self.steps]

    def of_round(self) -> tuple[float, float]:
        """Return mean loss and penalty since the round began."""
        loss, penalty = (self.sums[0] / max(1, self.steps[0])).tolist()
        return loss, penalty

    def since_log(self) -> tuple[float, float]:
        """Return mean loss and penalty since this was called last."""
        loss, penalty = (self.sums[1] / max(1, self.steps[1])).tolist()
        self.sums[1].zero_()
        self.steps[1] = 0
        return loss, penalty

    def begin_round(self) -> None:
        """Forget all."""
        self.sums.zero_()
        self.steps = [0, 0]

    def snapshot(self) -> dict[str, Any]:
        return {"sums": self.sums, "steps": self.steps}

    def restore_(self, saved: dict[str, Any]) -> None:
        self.sums.copy_(saved["sums"])
        self.steps = saved["steps"]
