"""distill: a short training in which the small model learns the original's outputs."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from thinrnn._calibration.calls import calls_of
from thinrnn._model.copying import copy_module
from thinrnn._model.tree import call_arguments, tensors_in
from thinrnn.errors import CalibrationError

Kind = Literal["auto", "square", "logits", "log_probabilities", "probabilities", "binary"]
CERTAIN = 1e-6  # nearer to 0 or 1 a probability is not followed
SHOW_EVERY = 10  # steps
WARM_UP = 0.2  # part of the steps


def distill(
    small: nn.Module,
    model: nn.Module,
    data: Iterable[Any],
    *,
    steps: int = 300,
    lr: float = 1e-3,
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
    outputs: Kind = "auto",
    temperature: float = 1.0,
    average: float = 0.99,
    progress: bool = True,
) -> nn.Module:
    """Return the small model after a short training on the original's outputs.

    No labels are needed. Both models given are left as they are.

    Args:
        small: The small model, as `prune` or `compact` made it.
        model: The original model; it runs in eval.
        data: Example calls as for `prune`; they are gone through again and again.
        steps: Optimizer steps, one call each.
        lr: The learning rate of Adam, which rises over the first fifth of the steps and falls to
            zero along a cosine.
        optimizer: Another optimizer: a function from parameters to an optimizer, such as
            `lambda parameters: torch.optim.SGD(parameters, lr=0.1)`. Its rate falls as well.
        outputs: What the outputs are, see `distillation_loss`.
        temperature: Softens distributions, see `distillation_loss`.
        average: The decay of the moving average of the weights, which is what comes back.
        progress: Whether to show a progress bar on a terminal.

    Returns:
        A copy of the small model with the averaged weights, in eval.

    Raises:
        CalibrationError: There is no call, or the loss is no longer a number.

    >>> model = nn.GRU(4, 16)
    >>> calls = [torch.randn(20, 8, 4) for _ in range(5)]
    >>> small = prune(model, calls, keep={"input": 3})
    >>> better = distill(small, model, calls, steps=10, progress=False)
    """
    calls = calls_of(data)
    teacher = copy_module(model).eval()
    student = copy_module(small).eval()  # without dropout: the targets have none either
    dropouts = _ready_for_backward_(student)
    parameters = [p for p in student.parameters() if p.requires_grad]
    optim = torch.optim.Adam(parameters, lr=lr) if optimizer is None else optimizer(parameters)
    schedule = torch.optim.lr_scheduler.LambdaLR(optim, lambda step: _rate(step, steps))
    means = [p.detach().clone() for p in parameters]
    with _shown(steps, progress) as advance:
        for step, call in enumerate(itertools.islice(itertools.cycle(calls), steps), 1):
            args, kwargs = call_arguments(call)
            with torch.no_grad():
                targets = teacher(*args, **kwargs)
            found = student(*args, **kwargs)
            loss = distillation_loss(found, targets, outputs=outputs, temperature=temperature)
            if not bool(loss.isfinite()):
                raise CalibrationError(
                    f"the loss is no longer a number at step {step}: lower the learning rate."
                )
            optim.zero_grad()
            torch.autograd.backward(loss)
            optim.step()
            schedule.step()
            decay = min(average, step / (step + 9))  # the first steps count for less
            torch._foreach_lerp_(means, [p.detach() for p in parameters], 1 - decay)
            advance(step, loss.item() if step % SHOW_EVERY == 0 else None)
    with torch.no_grad():
        for parameter, mean in zip(parameters, means, strict=True):
            parameter.copy_(mean)
    for rnn, dropout in dropouts.items():
        rnn.dropout = dropout
    return student.eval()


def _rate(step: int, steps: int) -> float:
    """Return the part of the learning rate at a step: up along a line, down along a cosine.

    Adam's first steps are as large as its later ones, whatever the slopes: at the full rate they
    would move a model that is nearly right.
    """
    return min(1.0, (step + 1) / (WARM_UP * steps + 1)) * (1 + math.cos(math.pi * step / steps)) / 2


def _ready_for_backward_(model: nn.Module) -> dict[nn.RNNBase, float]:
    """Put recurrent layers into training mode, as cuDNN wants it, without their dropout."""
    dropouts = {}
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            dropouts[module] = module.dropout
            module.train().dropout = 0.0
    return dropouts


def distillation_loss(
    found: Any, targets: Any, *, outputs: Kind = "auto", temperature: float = 1.0
) -> Tensor:
    """Return how far a model's outputs are from those of a teacher, for your own loop.

    Args:
        found: What the small model returned: a tensor, or any structure of tensors.
        targets: What the teacher returned. Tensors of another shape, such as the states of a
            smaller layer, are left out.
        outputs: "square": mean square over the targets' variance. "logits", "log_probabilities",
            "probabilities": cross entropy with the teacher's distribution over the last dimension.
            "binary": each number is a probability of its own, as behind a sigmoid. "auto" finds
            distributions by their sum, and takes "square" for everything else; logits and binary
            outputs cannot be told from other numbers, so name them.
        temperature: Logarithms of both distributions are divided by it. Above 1, unlikely entries
            count for more.

    Returns:
        The mean loss over the tensors that could be compared.

    Raises:
        CalibrationError: No tensor of the two has the same shape, or the temperature is not
            positive.

    >>> distillation_loss(torch.zeros(2, 3), torch.tensor([[0.0, 1, 2], [2, 1, 0]]))
    tensor(2.5000)
    """
    if not temperature > 0:
        raise CalibrationError(f"temperature={temperature:g}: it must be above 0.")
    pairs = zip(tensors_in(found), tensors_in(targets), strict=False)
    losses = [
        _loss(x, y.detach(), outputs, temperature)
        for x, y in pairs
        if x.shape == y.shape and x.is_floating_point()
    ]
    if not losses:
        raise CalibrationError(
            "the two models return no tensors of the same shape, so there is nothing to learn from."
        )
    return torch.stack(losses).mean()


def _loss(x: Tensor, y: Tensor, kind: Kind, temperature: float) -> Tensor:
    kind = _kind(y) if kind == "auto" else kind
    if kind == "square":
        return F.mse_loss(x, y) / y.var(correction=0).clamp(min=1e-12)
    if kind == "binary":
        x, y = (torch.logit(z, eps=CERTAIN) / temperature for z in (x, y))
        return F.binary_cross_entropy_with_logits(x, torch.sigmoid(y)) * temperature**2
    if kind == "probabilities":
        x, y = (z.clamp(min=1e-12).log() for z in (x, y))
    x, y = (x / temperature).log_softmax(-1), (y / temperature).softmax(-1)
    # slopes fall with the square of the temperature
    return -(y * x).sum(-1).mean() * temperature**2


def _kind(y: Tensor) -> Kind:
    """Return "probabilities" or "log_probabilities" where the last dimension is a distribution."""
    if y.dim() > 0 and y.shape[-1] > 1:
        if bool((y >= 0).all()) and bool(((y.sum(-1) - 1).abs() < 1e-3).all()):
            return "probabilities"
        if bool((y <= 0).all()) and bool((y.logsumexp(-1).abs() < 1e-3).all()):
            return "log_probabilities"
    return "square"


@contextmanager
def _shown(steps: int, progress: bool) -> Iterator[Callable[[int, float | None], None]]:
    """Show a progress bar on a terminal, nothing elsewhere; yield what advances it."""
    if not progress:
        yield lambda step, loss: None
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        bar.disable = not bar.console.is_terminal
        task = bar.add_task("distilling", total=steps)

        def advance(step: int, loss: float | None) -> None:
            text = None if loss is None else f"distilling, loss {loss:.4g}"
            bar.update(task, completed=step, description=text)

        yield advance
