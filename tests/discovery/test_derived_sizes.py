"""Numbers in a model's attributes that are twice, three or four times a group's size, or half."""

import tempfile
from typing import Any

import torch
from grids import A_QUARTER
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import thinrnn


class Directions(nn.Module):
    """DeepSpeech: the sum of two directions, by the size of one, or of both together."""

    def __init__(self, n: int, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.n_hidden, self.n_both = n, 2 * n
        self.rnn = kind(3, n, batch_first=True, bidirectional=True)
        self.head = nn.Linear(n, 2)

    def forward(self, x: Tensor, state: Any = None) -> Any:
        h, state = self.rnn(x, state)
        h = h.reshape(-1, self.n_both)
        h = h[:, : self.n_hidden] + h[:, self.n_hidden :]
        return self.head(h).view(*x.shape[:2], -1), state


class Half(nn.Module):
    """A row of neurons that is cut in the middle, by an attribute."""

    def __init__(self, n: int, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.half = n
        self.rnn = kind(3, 2 * n, batch_first=True)
        self.head = nn.Linear(n, 2)

    def forward(self, x: Tensor, state: Any = None) -> Any:
        h, state = self.rnn(x, state)
        return self.head(h[..., : self.half] * h[..., self.half :].sigmoid()), state


class Cell(nn.Module):
    """A recurrent cell written by hand, with the number of all its gates in an attribute."""

    gates = 3

    def __init__(self, n: int, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.n, self.rows = n, self.gates * n
        self.read = nn.Linear(3 + n, self.rows)
        self.head = nn.Linear(n, 2)

    def forward(self, x: Tensor, state: Any = None) -> Any:
        h = x.new_zeros(len(x), self.n) if state is None else state
        outputs = []
        for x_t in x.unbind(1):
            rows = self.read(torch.cat([x_t, h], -1)).view(-1, self.rows)
            f, g, *others = (rows[:, k * self.n : (k + 1) * self.n] for k in range(self.gates))
            h = f.sigmoid() * h + (1 - f.sigmoid()) * g.tanh()
            for other in others:
                h = h * other.sigmoid()
            outputs.append(self.head(h))
        return torch.stack(outputs, 1), h


class FourGates(Cell):
    gates = 4


class ThreeSizes(Directions):
    """Three attributes of one size: one direction, both, and both of them twice."""

    def __init__(self, n: int, kind: type[nn.RNNBase]) -> None:
        super().__init__(n, kind)
        self.n_twice = 4 * n

    def forward(self, x: Tensor, state: Any = None) -> Any:
        h, state = self.rnn(x, state)
        h = torch.cat([h, h.tanh()], -1).reshape(-1, self.n_twice)
        h = (h[:, : self.n_both] + h[:, self.n_both :]).view(-1, self.n_both)
        h = h[:, : self.n_hidden] + h[:, self.n_hidden :]
        return self.head(h).view(*x.shape[:2], -1), state


@A_QUARTER
@given(
    st.sampled_from([Directions, Half, Cell, FourGates, ThreeSizes]),
    st.sampled_from([nn.GRU, nn.LSTM, nn.RNN]),
    st.integers(4, 7),
    st.integers(0, 99),
)
def test_attributes_follow_in_all_ways_to_cut(make: Any, kind: Any, n: int, seed: int) -> None:
    torch.manual_seed(seed)
    model, x = make(n, kind).double().eval(), torch.randn(2, 4, 3).double()
    fresh = make(n, kind).double().eval()
    names = [name for name, value in vars(model).items() if type(value) is int]
    states = ["1"] if issubclass(make, Cell) else []
    plan = thinrnn.find_groups(model, x, states=states)
    (group,) = [group for group in plan if group.sets]
    assert {attribute.name for attribute in group.sets} == set(names), plan
    thinrnn.attach_(model, plan)
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = (torch.randn(gate.size) * 3 + 1).index_fill(0, torch.tensor(0), 9.0)
    small = thinrnn.compact(model)
    assert thinrnn.verify(model, small, x) <= 1e-10
    expected, state = model(x)
    _, small_state = small(x)
    after = model(x, state)[0]
    torch.testing.assert_close(small(x, small_state)[0], after, rtol=0, atol=1e-10)
    with tempfile.TemporaryDirectory() as folder:
        thinrnn.load_(fresh, thinrnn.save(small, folder))
    thinrnn.shrink_(model)
    for other in (fresh, model):
        torch.testing.assert_close(other(x)[0], expected, rtol=0, atol=1e-10)
        assert {name: vars(other)[name] for name in names} == {n: vars(small)[n] for n in names}
