"""The language model: plain torch, as a user would write it."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

CELLS: dict[str, Callable[..., nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


class LanguageModel(nn.Module):
    """Embedding, recurrent layers, output; dropout before, between and after the layers.

    `model(tokens, state)` takes tokens (T, B) and returns logits (T, B, V) and the next state.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        cell: str = "lstm",
        embedding: int = 400,
        hidden: tuple[int, ...] = (400, 400),
        tied: bool = False,
        dropout: float = 0.0,
        init_range: float | None = None,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.drop = nn.Dropout(dropout)
        self.rnn: nn.Module
        if len(set(hidden)) == 1:
            between = dropout if len(hidden) > 1 else 0.0  # torch warns about it after one layer
            self.rnn = CELLS[cell](embedding, hidden[0], num_layers=len(hidden), dropout=between)
        else:
            sizes = itertools.pairwise((embedding, *hidden))
            self.rnn = nn.ModuleList(CELLS[cell](m, n) for m, n in sizes)
        self.decoder = nn.Linear(hidden[-1], vocabulary)
        if init_range is not None:
            nn.init.uniform_(self.embedding.weight, -init_range, init_range)
            nn.init.uniform_(self.decoder.weight, -init_range, init_range)
            nn.init.zeros_(self.decoder.bias)
        if tied:
            self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        x = self.drop(self.embedding(tokens))  # (T, B, E)
        if isinstance(self.rnn, nn.ModuleList):
            x, state = layer_by_layer(self.rnn, self.drop, x, state)
        else:
            x, state = self.rnn(x, state)
        return self.decoder(self.drop(x)), state  # (T, B, V)


def layer_by_layer(
    layers: nn.ModuleList, drop: nn.Module, x: Tensor, state: Any
) -> tuple[Tensor, Any]:
    """Return what one torch module would return if its layers could have unequal sizes."""
    states = [None] * len(layers) if state is None else list(state)
    for i, layer in enumerate(layers):
        x, states[i] = layer(x if i == 0 else drop(x), states[i])
    return x, states


def example_tokens(batch: int = 2, steps: int = 3, device: torch.device | None = None) -> Tensor:
    """Return tokens for the tools that need to see the model at work."""
    return torch.zeros(steps, batch, dtype=torch.long, device=device)
