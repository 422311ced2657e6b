"""A matrix that is used as it is and turned: its neurons are found, gated and cut all the same."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thinrnn


class Factored(nn.Module):
    """A tied table R P^T; P widens the vectors on the way in and narrows on the way out."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30, 6)
        self.widen = nn.Linear(6, 10, bias=False)
        self.rnn = nn.GRU(10, 10)
        self.head = nn.Linear(6, 30)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        h, _ = self.rnn(self.widen(self.table(tokens)))
        return self.head(F.linear(h, self.widen.weight.t()))


class Square(nn.Module):
    """Neurons that one matrix reads in both directions: no single gate can close them."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(5, 8)
        self.mix = nn.Linear(8, 8, bias=False)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.head(torch.cat([self.mix(h), F.linear(h, self.mix.weight.T)], -1))


def test_both_uses_of_a_matrix_are_found_and_cut():
    torch.manual_seed(0)
    model = Factored().double().eval()
    tokens = torch.randint(30, (7, 3))
    plan = thinrnn.find_groups(model, tokens)
    sizes = {group.name: group.size for group in plan}
    assert sizes == {"widen+rnn.l0": 10, "table+widen.t": 6}
    thinrnn.attach_(model, plan)
    for number, gate in enumerate(thinrnn.gates(model).values()):
        gate.log_alpha = 3 * torch.randn(gate.size, generator=torch.Generator().manual_seed(number))
    small = thinrnn.compact(model)
    assert thinrnn.verify(model, small, tokens) < 1e-10
    kept = {name: int(gate.keep.sum()) for name, gate in thinrnn.gates(model).items()}
    wide, narrow = kept["widen+rnn.l0"], kept["table+widen.t"]
    assert wide < 10 and narrow < 6
    assert tuple(small.widen.weight.shape) == (wide, narrow)
    assert tuple(small.head.weight.shape) == (30, narrow)


def test_neurons_that_one_gate_cannot_close_are_refused_with_the_reason():
    plan = thinrnn.find_groups(Square(), torch.randn(4, 2, 5))
    assert [group.name for group in plan] == ["x"]
    reasons = {refusal.group.name: refusal.reason for refusal in plan.refused}
    assert any("'mix.weight' is read along two dimensions" in reason for reason in reasons.values())


@pytest.mark.parametrize("turn", [torch.Tensor.t, torch.t, lambda weight: weight.T])
def test_a_turned_weight_alone_reads_as_a_linear_layer_does(turn):
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(5, 8)
            self.out = nn.Parameter(torch.randn(8, 4))
            self.bias = nn.Parameter(torch.randn(4))

        def forward(self, x):
            return F.linear(self.rnn(x)[0], turn(self.out), self.bias)

    plan = thinrnn.find_groups(Turned(), torch.randn(4, 2, 5))
    read = {(s.parameter, s.dim) for s in plan["rnn.l0"].slices if s.role == "read"}
    assert read == {("rnn.weight_hh_l0", 1), ("out", 0)}
