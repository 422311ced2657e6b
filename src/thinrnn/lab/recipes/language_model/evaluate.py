"""How well a model predicts a text."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinrnn._model.tree import tensors_in
from thinrnn.lab.device.graphs import GraphedStep, Step
from thinrnn.lab.recipes.language_model.data import scoring_streams
from thinrnn.nn.rhn import RHN

WINDOW = 64  # steps at a time
# The same where a CUDA graph runs them: windows before the graph is there are slow, so they are
# short and few, one as it is and one on the stream of the graph.
GRAPHED_WINDOW, WARMUP = 32, 1


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
    graphed = _has_many_kernels(model, device)

    def score(x: Tensor, y: Tensor) -> None:
        nonlocal state
        logits, new = model(x, state)
        total.add_(
            F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-1, reduction="sum")
        )
        if state is None or not graphed:
            state = new
        else:  # in place: a CUDA graph reads and writes the same tensors each time
            for old, value in zip(tensors_in(state), tensors_in(new), strict=True):
                old.copy_(value)

    run: Step = score
    window = GRAPHED_WINDOW if graphed else WINDOW
    for place in range(0, len(inputs), window):
        x, y = (part[place : place + window].long() for part in (inputs, targets))
        if graphed and run is score and state is not None:
            run = GraphedStep(score, x, y, warmup=WARMUP)
        run(x, y)
    model.train(was_training)
    return total.item() / len(tokens)


def _has_many_kernels(model: nn.Module, device: torch.device) -> bool:
    """Return whether launching them takes longer than running them."""
    layers = (RHN, nn.RNNBase)
    return device.type == "cuda" and any(isinstance(module, layers) for module in model.modules())


def perplexity(loss: float) -> float:
    """Return exp(loss), infinite where that is too large."""
    return math.exp(loss) if loss < 700 else math.inf
