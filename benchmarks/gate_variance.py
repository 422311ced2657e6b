"""How far the gradient of the gates varies: hard concrete, and two unbiased estimators.

    python -m benchmarks.gate_variance       a small LSTM that predicts characters, on a CPU

The model is trained without gates first. Then all gates are open with the same probability, and the
gradient of `log_alpha` is drawn many times on one batch. The unbiased estimators share their mean,
the gradient of the expected loss over binary gates; hard concrete has the gradient of a relaxed
loss. `ARM` of thinrnn is DisARM; plain ARM is measured beside it.
"""

import math
from dataclasses import dataclass
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn

import thinrnn
from benchmarks.record import parser, write_record


@dataclass(frozen=True)
class PlainARM(thinrnn.ARM):
    """The estimator as it was published first, before DisARM."""

    def direction(self, log_alpha: Tensor, uniform: Tensor) -> Tensor:
        return 0.5 - uniform


ESTIMATORS = {
    "hard concrete": thinrnn.HardConcrete(),
    "ARM": PlainARM(),
    "DisARM": thinrnn.ARM(),
}


class Characters(nn.Module):
    """Predicts the next character."""

    def __init__(self, characters: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, hidden)
        self.rnn = nn.LSTM(hidden, hidden, num_layers=2)
        self.head = nn.Linear(hidden, characters)

    def forward(self, x: Tensor) -> Tensor:  # (T, B) to (T, B, characters)
        return self.head(self.rnn(self.embedding(x))[0])  # type: ignore[no-any-return]


def batch_of(text: Tensor, steps: int, batch: int) -> tuple[Tensor, Tensor]:
    """Return random windows of the text, and the characters that follow."""
    starts = torch.randint(len(text) - steps - 1, (batch,))
    windows = text[starts + torch.arange(steps + 1)[:, None]]  # (T + 1, B)
    return windows[:-1], windows[1:]


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the mean cross entropy."""
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def log_alpha_for(estimator: thinrnn.Estimator, probability: float) -> float:
    """Return the `log_alpha` at which a gate is open with this probability."""
    at_zero = float(estimator.open_probability(torch.zeros(1, dtype=torch.float64)))
    return math.log(probability / (1 - probability)) - math.log(at_zero / (1 - at_zero))


def draws(model: nn.Module, x: Tensor, y: Tensor, samples: int) -> Tensor:
    """Return so many gradients of all gates, (samples, gates)."""
    gates = list(thinrnn.gates(model).values())
    is_arm = isinstance(gates[0].estimator, thinrnn.ARM)
    found = []
    for _ in range(samples):
        model.zero_grad()
        if is_arm:
            thinrnn.arm_loss(model, lambda: loss_of(model, x, y)).backward()
        else:
            loss_of(model, x, y).backward()
        found.append(torch.cat([gate.log_alpha.grad for gate in gates]))
    return torch.stack(found).double()


def figures(gradients: Tensor) -> dict[str, float]:
    """Return the length of the mean gradient, and the variance summed over gates."""
    count = len(gradients)
    variance = float(gradients.var(0).sum())
    # the mean of a few noisy draws is too long by the variance that is left in it
    squared = float(gradients.mean(0).square().sum()) - variance / count
    return {"mean": math.sqrt(max(squared, 0.0)), "variance": variance}


def main() -> None:
    arguments = parser(__doc__, "gate-variance-cpu.json")
    arguments.add_argument("--hidden", type=int, default=64)
    arguments.add_argument("--train", type=int, default=300, help="steps before gates are added")
    arguments.add_argument("--samples", type=int, default=400)
    arguments.add_argument("--steps", type=int, default=20)
    arguments.add_argument("--batch", type=int, default=16)
    arguments.add_argument("--open", type=float, nargs="+", default=[0.5, 0.9, 0.99])
    options = arguments.parse_args()
    torch.manual_seed(0)
    characters = {c: i for i, c in enumerate(sorted(set("".join(topics.values()))))}
    text = torch.tensor([characters[c] for c in "".join(topics.values())])
    model = Characters(len(characters), options.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(options.train):
        loss = loss_of(model, *batch_of(text, options.steps, options.batch))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    x, y = batch_of(text, options.steps, options.batch)
    plan = thinrnn.find_groups(model, x)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for probability in options.open:
        case = found[f"{probability:g}"] = {}
        for name, estimator in ESTIMATORS.items():
            thinrnn.attach_(model, plan, gate=estimator)
            for gate in thinrnn.gates(model).values():
                gate.log_alpha = log_alpha_for(estimator, probability)
            case[name] = figures(draws(model, x, y, options.samples))
            thinrnn.detach_(model)
            print(f"{probability:g} {name:<14}", *(f"{k} {v:.4g}" for k, v in case[name].items()))
    gates = sum(group.size for group in plan.groups)
    write_record("gradients of gates", options, loss=loss.item(), gates=gates, gradients=found)


if __name__ == "__main__":
    main()
