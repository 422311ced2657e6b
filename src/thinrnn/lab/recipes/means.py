"""Mean loss and penalty of an epoch, and since the last log, summed on the device."""

from typing import Any

import torch
from torch import Tensor

from thinrnn.lab.device.processes import ALONE, Processes


class Means:
    """`add` costs a step next to nothing; only reading waits for the device."""

    def __init__(self, device: torch.device, processes: Processes = ALONE) -> None:
        self.processes = processes
        self.sums = torch.zeros(2, 2, device=device)  # of the epoch and of the log; loss, penalty
        self.rows = [0, 0]

    def add(self, loss: Tensor, penalty: Tensor, rows: int) -> None:
        """Add a step, weighted by its rows; may be captured in a CUDA graph, unlike `count`."""
        self.sums += torch.stack([loss.detach().float(), penalty.detach().float()]) * rows

    def count(self, rows: int) -> None:
        """Count the rows of a step that was added."""
        self.rows = [number + rows for number in self.rows]

    def of_epoch(self) -> tuple[float, float]:
        """Return mean loss and penalty since the epoch began."""
        loss, penalty = self.processes.mean_(self.sums[0] / max(1, self.rows[0])).tolist()
        return loss, penalty

    def since_log(self) -> tuple[float, float]:
        """Return mean loss and penalty since this was called last."""
        loss, penalty = self.processes.mean_(self.sums[1] / max(1, self.rows[1])).tolist()
        self.sums[1].zero_()
        self.rows[1] = 0
        return loss, penalty

    def begin_epoch(self) -> None:
        """Start again at zero."""
        self.sums.zero_()
        self.rows = [0, 0]

    def snapshot(self) -> dict[str, Any]:
        return {"sums": self.processes.mean_(self.sums.clone()), "rows": self.rows}

    def restore_(self, saved: dict[str, Any]) -> None:
        self.sums.copy_(saved["sums"])
        self.rows = saved["rows"]
