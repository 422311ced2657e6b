"""A small tagger with gates that are closed, soft and open."""

from typing import Any

import torch
from torch import Tensor, nn

import thinrnn

X = torch.randint(20, (5, 3), generator=torch.Generator().manual_seed(0))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(20, 6)
        self.rnn = nn.LSTM(6, 8, num_layers=2)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(self.emb(x))[0])


def gated(seed: int = 0, **options: Any) -> Tagger:
    """Return a tagger in training mode; 5 of 8 neurons of a layer stay."""
    torch.manual_seed(seed)
    model = Tagger()
    thinrnn.attach_(model, thinrnn.find_groups(model, X), **options)
    for name, gate in thinrnn.gates(model).items():
        last = 3 if name == "rnn.l0" else 5  # the layers end with unequal sizes
        gate.log_alpha = torch.linspace(-4, last, gate.size)
    return model


def learned(model: nn.Module) -> dict[str, Tensor]:
    """Return the gradient of each parameter that has one."""
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
