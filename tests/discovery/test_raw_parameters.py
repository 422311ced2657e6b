"""Parameters of the user's own code that hold one number per neuron: found, and cut along."""

import copy
from typing import Any

import pytest
import torch
from grids import A_QUARTER
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import thinrnn

LAST = (lambda h: h, lambda h: h)  # to where the channels are, and back
MIDDLE = (lambda h: h.transpose(1, 2), lambda h: h.transpose(1, 2))
IMAGE = (lambda h: h.transpose(1, 2).unsqueeze(-1), lambda h: h.squeeze(-1).transpose(1, 2))
SHAPES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "(C,)": (LAST, (-1,)),
    "(1, C)": (LAST, (1, -1)),
    "(1, 1, C)": (LAST, (1, 1, -1)),
    "(C, 1)": (MIDDLE, (-1, 1)),
    "(1, C, 1)": (MIDDLE, (1, -1, 1)),
    "(C, 1, 1)": (IMAGE, (-1, 1, 1)),
}
USES = {
    "scale": lambda h, p: h * p,
    "offset": lambda h, p: p + h,
    "layer scale": lambda h, p: h + p * torch.tanh(h),
    "divided": lambda h, p: h / (1 + p**2),
}


class Scaled(nn.Module):
    """A recurrent layer, a parameter for each channel, and what reads them."""

    def __init__(self, shape: str, use: str, reader: str, directions: int, n: int = 6) -> None:
        super().__init__()
        self.there, self.back = SHAPES[shape][0]
        self.use, self.reader = USES[use], reader
        n *= directions
        self.rnn = nn.GRU(4, n // directions, batch_first=True, bidirectional=directions == 2)
        self.gamma = nn.Parameter(torch.rand(n).add(0.5).view(SHAPES[shape][1]))
        if reader == "linear":
            self.head: Any = nn.Linear(n, 3)
        else:
            self.head = nn.Parameter(torch.randn(n, 3) if reader == "matrix" else torch.randn(n))

    def forward(self, x: Tensor) -> Tensor:
        h = self.back(self.use(self.there(self.rnn(x)[0]), self.gamma))
        if self.reader == "linear":
            return self.head(h)
        return h @ self.head if self.reader == "matrix" else (h * self.head).sum(-1)


@A_QUARTER
@given(
    st.sampled_from(list(SHAPES)),
    st.sampled_from(list(USES)),
    st.sampled_from(["linear", "matrix", "sum"]),
    st.sampled_from([1, 2]),
    st.integers(0, 9),
)
def test_parameters_per_channel_are_cut_along(
    shape: str, use: str, reader: str, directions: int, seed: int
) -> None:
    torch.manual_seed(seed)
    model = Scaled(shape, use, reader, directions).double()
    x = torch.randn(2, 5, 4).double()
    plan = thinrnn.find_groups(model, x)
    rows = [group for group in plan if not group.is_input]
    assert sum(group.size for group in rows) == 6 * directions, plan
    assert all("gamma" in {s.parameter for s in group.slices} for group in rows)
    thinrnn.attach_(model, plan)
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.randn(gate.size) * 3 + 0.5
    small = thinrnn.compact(model.eval())
    assert thinrnn.verify(model, small, x) <= 1e-10
    assert small.gamma.numel() == sum(int(g.keep.sum()) for n, g in _hidden(model))


def _hidden(model: nn.Module) -> list[tuple[str, Any]]:
    return [(name, gate) for name, gate in thinrnn.gates(model).items() if name != "x"]


def test_they_follow_in_training_and_in_files(tmp_path: Any) -> None:
    torch.manual_seed(0)
    model, x = Scaled("(1, C, 1)", "layer scale", "sum", 1).double(), torch.randn(2, 5, 4).double()
    fresh = copy.deepcopy(model)
    plan = thinrnn.find_groups(model, x)
    assert "gamma" in str(plan) and "head" in str(plan)
    thinrnn.attach_(model, plan)
    optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-2))
    model(x).square().mean().backward()
    optimizer.step()
    thinrnn.gates(model)["rnn.l0"].log_alpha = torch.tensor([9.0, -9, 9, 1, -9, 9])
    before = optimizer.state[model.gamma]["exp_avg"].clone()
    expected = model.eval()(x)
    assert thinrnn.shrink_(model, optimizer) == 2
    assert torch.equal(optimizer.state[model.gamma]["exp_avg"], before[:, [0, 2, 3, 5]])
    assert model.gamma.shape == (1, 4, 1)
    torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-10)
    small = thinrnn.compact(model)
    thinrnn.save(small, tmp_path)
    torch.testing.assert_close(thinrnn.load_(fresh, tmp_path)(x), small(x), rtol=0, atol=0)


def test_a_norm_written_by_hand_stays_refused() -> None:
    class Normed(Scaled):
        def forward(self, x: Tensor) -> Tensor:
            h = self.rnn(x)[0]
            h = (h - h.mean(-1, keepdim=True)) / h.std(-1, keepdim=True)
            return self.head(h * self.gamma)

    plan = thinrnn.find_groups(Normed("(C,)", "scale", "linear", 1), torch.randn(2, 5, 4))
    with pytest.raises(thinrnn.PlanError, match="do they mix the neurons"):
        plan["rnn.l0"]


def test_a_model_of_which_nothing_can_go() -> None:
    class Returned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(9, 4)
            self.rnn = nn.GRU(4, 6, batch_first=True)

        def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
            x = self.embedding(tokens)
            return x, self.rnn(x)[0]

    plan = thinrnn.find_groups(Returned(), torch.randint(9, (2, 5)))
    assert [refusal.group.name for refusal in plan.refused] == ["embedding", "rnn.l0"]
    assert not plan.groups
