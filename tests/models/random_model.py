"""Models put together at random from layers and from what people write between them."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = 4
SIZES = (3, 4, 5, 6, 8)


class Operation(NamedTuple):
    """`run(part, x)`, or `run(part, x, y)` where it takes two; values are (batch, time, width)."""

    run: Callable[..., Tensor]
    make: Callable[[int, int], Any] | None = None  # (width, another width) -> module or parameter
    second: str = ""  # "" for one value, "same" for two of one width, "any" for any two
    even: bool = False  # whether the width has to be even


def loop(cell: nn.GRUCell, x: Tensor) -> Tensor:
    h, steps = None, []
    for t in range(x.size(1)):
        h = cell(x[:, t], h)
        steps.append(h)
    return torch.stack(steps, 1)


def last_states(rnn: nn.LSTM, x: Tensor) -> Tensor:
    out, (h, _) = rnn(x)
    return torch.cat([h[-2], h[-1]], -1).unsqueeze(1) + 0 * out


def interleaved(_: None, x: Tensor) -> Tensor:
    value, gate = x.unflatten(-1, (-1, 2)).unbind(-1)
    return value * gate.sigmoid()


def raw(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape))


def channels_first(module: nn.Module, x: Tensor) -> Tensor:
    return module(x.transpose(1, 2)).transpose(1, 2)


OPERATIONS = {
    "linear": Operation(lambda m, x: m(x), nn.Linear),
    "gru": Operation(lambda m, x: m(x)[0], lambda n, k: nn.GRU(n, k, batch_first=True)),
    "deep": Operation(lambda m, x: m(x)[0], lambda n, k: nn.LSTM(n, k, 2, batch_first=True)),
    "both": Operation(
        lambda m, x: m(x)[0], lambda n, k: nn.GRU(n, k, batch_first=True, bidirectional=True)
    ),
    "states": Operation(
        last_states, lambda n, k: nn.LSTM(n, k, 2, batch_first=True, bidirectional=True)
    ),
    "loop": Operation(loop, nn.GRUCell),
    "residual": Operation(lambda m, x: x + m(x)[0], lambda n, k: nn.GRU(n, n, batch_first=True)),
    "conv": Operation(channels_first, lambda n, k: nn.Conv1d(n, k, 3, padding=1)),
    "batch norm": Operation(channels_first, lambda n, k: nn.BatchNorm1d(n)),
    "layer norm": Operation(lambda m, x: m(x), lambda n, k: nn.LayerNorm(n)),
    "tanh": Operation(lambda _, x: x.tanh()),
    "relu": Operation(lambda _, x: x.relu()),
    "square": Operation(lambda _, x: x * x),
    "flip": Operation(lambda _, x: x.flip(1)),
    "cumsum": Operation(lambda _, x: x.cumsum(1)),
    "reverse": Operation(lambda _, x: x.flip(-1)),
    "centre": Operation(lambda _, x: x - x.mean(1, keepdim=True)),
    "pool": Operation(lambda _, x: x.max(1, keepdim=True).values + 0 * x),
    "softmax": Operation(lambda _, x: x.softmax(-1)),
    "glu": Operation(lambda _, x: F.glu(x, -1), even=True),
    "interleaved glu": Operation(interleaved, even=True),
    "attention": Operation(lambda m, x: x * m(x).softmax(1), lambda n, k: nn.Linear(n, 1)),
    "raw scale": Operation(lambda w, x: x * w, lambda n, k: raw(n)),
    "raw table": Operation(lambda w, x: x + w, lambda n, k: raw(1, STEPS, n)),
    "raw matrix": Operation(lambda w, x: x @ w, raw),
    "raw attention": Operation(
        lambda w, x: x * (x.tanh() @ w).softmax(1).unsqueeze(-1), lambda n, k: raw(n)
    ),
    "add": Operation(lambda _, x, y: x + y, second="same"),
    "subtract": Operation(lambda _, x, y: x - y, second="same"),
    "multiply": Operation(lambda _, x, y: x * y, second="same"),
    "maximum": Operation(lambda _, x, y: torch.maximum(x, y), second="same"),
    "gate": Operation(lambda _, x, y: x * y.sigmoid(), second="same"),
    "concatenate": Operation(lambda _, x, y: torch.cat([x, y], -1), second="any"),
}


class RandomModel(nn.Module):
    """The model of a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        chance = random.Random(seed)
        self.inputs = chance.randint(2, 5)
        self.program: list[tuple[str, list[int], str]] = []
        values = [torch.randn(2, STEPS, self.inputs)]
        for number in range(chance.randint(4, 12)):
            name, operation = chance.choice(list(OPERATIONS.items()))
            first = chance.randrange(max(0, len(values) - 4), len(values))
            width = values[first].size(-1)
            same = [i for i, value in enumerate(values) if value.size(-1) == width and i != first]
            second = {"": [], "same": same, "any": list(range(len(values)))}[operation.second]
            if (operation.second and not second) or (operation.even and width % 2):
                continue
            part = operation.make
            if part is not None:
                setattr(self, f"part{number}", part(width, chance.choice((*SIZES, width))))
            sources = [first, *([chance.choice(second)] if second else [])]
            self.program.append((name, sources, f"part{number}"))
            values.append(self.step(self.program[-1], values))
        width = values[-1].size(-1)
        self.rnn = nn.GRU(width, 3, batch_first=True)
        self.head, self.other = nn.Linear(3, 2), nn.Linear(width, 2)
        self.also_returned = chance.randrange(len(values)) if chance.random() < 0.25 else None

    def step(self, line: tuple[str, list[int], str], values: list[Tensor]) -> Tensor:
        name, sources, part = line
        return OPERATIONS[name].run(getattr(self, part, None), *(values[i] for i in sources))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        values = [x]
        for line in self.program:
            values.append(self.step(line, values))
        results = (self.head(self.rnn(values[-1])[0]), self.other(values[-1]))
        return results if self.also_returned is None else (*results, values[self.also_returned])
