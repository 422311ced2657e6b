"""What each process of the tests under DistributedDataParallel runs."""

from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import thinrnn

STEPS, BATCH = 50, 8
EXAMPLE = torch.zeros(5, 2, 6)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(6, 10, num_layers=2)
        self.head = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0][-1])


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(7)
    xs = torch.randn(STEPS, 5, BATCH, 6, generator=generator).double()
    return [(x, x.sum((0, 2)).sign().long() + 1) for x in xs]


def train(rank: int, world: int, options: dict[str, Any]) -> nn.Module:
    """Train on every world-th sequence of each batch; rank 0 draws what one process would."""
    torch.manual_seed(3)
    model: nn.Module = Classifier().double()
    plan = thinrnn.find_groups(model, EXAMPLE.double())
    wrap = options.get("wrap")
    late = wrap == "first"
    if not late:
        thinrnn.attach_(model, plan)
    caller = DistributedDataParallel(model) if wrap else model
    torch.manual_seed(5 + rank)
    if late:
        thinrnn.attach_(model, plan)
    sizes = options.get("sizes", {"params": 0.5, "steps": 30})
    target = thinrnn.Target(model, **sizes)
    optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-2, gate_lr=0.5))
    for step, (x, y) in enumerate(batches(), start=1):
        loss = nn.functional.cross_entropy(caller(x[:, rank::world]), y[rank::world])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        target.step()
        if step in options.get("shrink", ()):
            thinrnn.shrink_(model, optimizer)
    return model


def result(model: nn.Module) -> dict[str, Any]:
    """Return the original neurons that stay, and the weights of the small model."""
    kept = {name: g.origin[g.keep].tolist() for name, g in thinrnn.gates(model).items()}
    return {"kept": kept, "weights": thinrnn.compact(model).state_dict()}


def run(rank: int, world: int, folder: str, options: dict[str, Any]) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world
    )
    torch.save(result(train(rank, world, options)), Path(folder) / f"{rank}.pt")
    distributed.destroy_process_group()
