"""Recurrent layers that people write themselves: linear layers or convolutions, then plain code."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thinrnn


def softly(x: Tensor) -> Tensor:
    return torch.where(x >= 0, x + 0.5, x.sigmoid())


class MinGRU(nn.Module):
    """One row for hidden values and gates, as in minGRU: step by step."""

    def __init__(self, n: int, m: int) -> None:
        super().__init__()
        self.both = nn.Linear(n, 2 * m, bias=False)

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        hidden, gate = self.both(x).chunk(2, -1)
        out = []
        for a, z in zip(hidden.unbind(1), gate.sigmoid().unbind(1), strict=True):
            h = softly(a) * z if h is None else torch.lerp(h, softly(a), z)
            out.append(h)
        return torch.stack(out, 1), out[-1]


class ParallelMinGRU(MinGRU):
    """The same by a scan in log space."""

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        hidden, gate = self.both(x).chunk(2, -1)
        keep, new = -F.softplus(gate), -F.softplus(-gate) + softly(hidden).log()
        if h is not None:
            new, keep = torch.cat([h.log()[:, None], new], 1), F.pad(keep, (0, 0, 1, 0))
        total = keep.cumsum(1)
        out = (total + torch.logcumsumexp(new - total, 1)).exp()[:, -x.shape[1] :]
        return out, out[:, -1]


class MinLSTM(nn.Module):
    def __init__(self, n: int, m: int) -> None:
        super().__init__()
        self.f, self.i, self.h = nn.Linear(n, m), nn.Linear(n, m), nn.Linear(n, m)

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        f, i = self.f(x).sigmoid(), self.i(x).sigmoid()
        f, new = f / (f + i), i / (f + i) * self.h(x)
        out = []
        for t in range(x.shape[1]):
            h = new[:, t] if h is None else f[:, t] * h + new[:, t]
            out.append(h)
        return torch.stack(out, 1), out[-1]


class SRU(nn.Module):
    """One matrix for four rows, and weights per neuron for the cell."""

    def __init__(self, n: int, m: int) -> None:
        super().__init__()
        self.w = nn.Linear(n, 4 * m, bias=False)
        self.v, self.b = nn.Parameter(torch.randn(2, m)), nn.Parameter(torch.randn(2, m))

    def forward(self, x: Tensor, c: Tensor | None = None) -> tuple[Tensor, Tensor]:
        rows = self.w(x).unflatten(-1, (4, -1))
        c = torch.zeros_like(rows[:, 0, 0]) if c is None else c
        out = []
        for new, f, r, x_t in (step.unbind(1) for step in rows.unbind(1)):
            f = (f + self.v[0] * c + self.b[0]).sigmoid()
            r = (r + self.v[1] * c + self.b[1]).sigmoid()
            c = f * c + (1 - f) * new
            out.append(r * c + (1 - r) * x_t)
        return torch.stack(out, 1), c


class IndRNN(nn.Module):
    def __init__(self, n: int, m: int) -> None:
        super().__init__()
        self.w, self.u = nn.Linear(n, m), nn.Parameter(torch.rand(m))

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        a, out = self.w(x), []
        h = torch.zeros_like(a[:, 0]) if h is None else h
        for t in range(x.shape[1]):
            h = torch.relu(a[:, t] + self.u * h)
            out.append(h)
        return torch.stack(out, 1), h


class LRU(nn.Module):
    """A real diagonal recurrence, summed up with powers of the decay."""

    def __init__(self, n: int, m: int) -> None:
        super().__init__()
        self.nu, self.gamma = nn.Parameter(torch.rand(m)), nn.Parameter(torch.rand(m))
        self.b = nn.Linear(n, m, bias=False)

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        steps = torch.arange(1, x.shape[1] + 1).to(x)
        powers = torch.exp(-self.nu.exp()) ** steps[:, None]
        out = (self.b(x) * self.gamma.exp() / powers).cumsum(1) * powers
        out = out if h is None else out + powers * h[:, None]
        return out, out[:, -1]


class ComplexLRU(nn.Module):
    """A complex one, step by step, with a complex state."""

    def __init__(self, n: int, m: int) -> None:
        super().__init__()
        self.nu, self.theta = nn.Parameter(torch.rand(m)), nn.Parameter(torch.rand(m))
        self.real, self.imaginary = nn.Linear(n, m, bias=False), nn.Linear(n, m, bias=False)

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        decay = torch.exp(torch.complex(-self.nu.exp(), self.theta))
        u, out = torch.complex(self.real(x), self.imaginary(x)), []
        h = torch.zeros_like(u[:, 0]) if h is None else h
        for t in range(x.shape[1]):
            h = decay * h + u[:, t]
            out.append(h)
        return torch.stack(out, 1).real, h


CELLS = (MinGRU, ParallelMinGRU, MinLSTM, SRU, IndRNN, LRU, ComplexLRU)


class Model(nn.Module):
    def __init__(self, cell: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.front = nn.Linear(3, 5)
        self.cells = nn.ModuleList([cell(5, 8), cell(8, 6)])
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor, states: Any = (None, None)) -> Any:
        x, new = self.front(x), []
        for cell, state in zip(self.cells, states, strict=True):
            x, state = cell(x, state)
            new.append(state)
        return self.head(x), new


def small_of(model: nn.Module, example: Any, **options: Any) -> tuple[Any, nn.Module]:
    plan = thinrnn.find_groups(model, example, **options)
    thinrnn.attach_(model, plan)
    for gate in thinrnn.gates(model).values():
        soft = torch.linspace(-1, 1, gate.size).double()
        gate.log_alpha = torch.where(torch.arange(gate.size) % 2 == 0, soft, -9.0)
    small = thinrnn.compact(model)
    assert thinrnn.verify(model, small, example) < 1e-10
    return plan, small


@pytest.mark.parametrize("cell", CELLS)
def test_element_wise_recurrences(cell: Any) -> None:
    """With states that come back, narrow ones included, and vectors that each neuron owns."""
    model = Model(cell).double().eval()
    x = torch.randn(2, 3, 3, dtype=torch.float64)
    _, states = model(x)
    example = (x, [state.detach() for state in states])
    plan, small = small_of(model, example, states=["1.*"])
    sizes = [group.size for group in plan if not group.is_input]
    assert sizes == [5, 8, 6], str(plan)
    own = [parameter for parameter in small.cells[0].parameters() if parameter.dim() == 1]
    assert all(parameter.shape == (4,) for parameter in own)
    narrow = [model(x)[1], small(x)[1]]
    assert [state.shape[-1] for state in narrow[1]] == [4, 3]
    torch.testing.assert_close(
        model(x, narrow[0])[0], small(x, narrow[1])[0], rtol=1e-10, atol=1e-10
    )


class ConvLSTM(nn.Module):
    """Channels are the neurons; one convolution reads input and state side by side."""

    def __init__(self, n: int, m: int, together: bool) -> None:
        super().__init__()
        self.m = m
        self.x = nn.Conv2d(n + m if together else n, 4 * m, 3, padding=1)
        self.h = None if together else nn.Conv2d(m, 4 * m, 3, padding=1, bias=False)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        z = self.x(torch.cat([x, h], 1)) if self.h is None else self.x(x) + self.h(h)
        i, f, o, g = z.split(self.m, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class Video(nn.Module):
    def __init__(self, together: bool) -> None:
        super().__init__()
        self.cell, self.head = ConvLSTM(2, 5, together), nn.Conv2d(5, 2, 1)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, C, H, W)
        state = [x.new_zeros(len(x), self.cell.m, *x.shape[-2:])] * 2
        out = []
        for frame in x.unbind(1):
            state = list(self.cell(frame, *state))
            out.append(self.head(state[0]))
        return torch.stack(out, 1)


@pytest.mark.parametrize("together", [True, False])
def test_channels_of_a_convolutional_lstm(together: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 2, 2, 3, 4, dtype=torch.float64)
    plan, small = small_of(Video(together).double().eval(), x)
    assert [group.size for group in plan] == [2, 5]
    assert small.cell.m == 3 and small.head.in_channels == 3
