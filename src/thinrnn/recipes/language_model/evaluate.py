"""How well a model predicts a text."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinrnn.recipes.language_model.data import scoring_streams

WINDOW = 64


@torch.no_grad()
def mean_loss(model: nn.Module, tokens: Tensor, *, batch: int, start: int) -> float:
    """Return the mean cross entropy over every token of a text, after <eos> (`start`)."""
    device = next(model.parameters()).device
    inputs, targets = scoring_streams(tokens, min(batch, len(tokens)), start)
    inputs, targets = inputs.to(device), targets.to(device)
    was_training = model.training
    model.eval()
    total = torch.zeros((), dtype=torch.float64, device=device)
    state = None
    for place in range(0, len(inputs), WINDOW):
        logits, state = model(inputs[place : place + WINDOW].long(), state)
        wanted = targets[place : place + WINDOW].long()
        total += F.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), ignore_index=-1, reduction="sum"
        )
    model.train(was_training)
    return total.item() / len(tokens)


def perplexity(loss: float) -> float:
    """Return exp(loss), infinite where that is too large."""
    return math.exp(loss) if loss < 700 else math.inf
