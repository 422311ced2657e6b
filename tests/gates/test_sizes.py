"""Sizes of a model as functions of who is there: exact with zeros and ones, expected in between."""

import itertools
import math

import pytest
import torch
from grids import A_QUARTER, GateSetting, Shape, gate_settings, gated_model, shapes
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

import thinrnn
from thinrnn._gates.attach import attached
from thinrnn._surgery.provenance import record_of


class Convolved(nn.Module):
    """Channels that are coupled through normalisation, a residual sum and a depthwise filter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(4, 6, 3, padding=1)
        self.norm = nn.BatchNorm1d(6)
        self.slope = nn.PReLU(6)
        self.rnn = nn.LSTM(6, 6, batch_first=True, bidirectional=True)
        self.back = nn.Linear(12, 6)
        self.last = nn.Conv1d(6, 3, 2)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, 4)
        x = self.slope(self.norm(self.first(x.transpose(1, 2)))).transpose(1, 2)
        x = x + self.back(self.rnn(x)[0])
        return self.last(x.transpose(1, 2))


def assert_counted(model: nn.Module, small: nn.Module) -> None:
    sizes = attached(model).sizes
    present = {}
    for name, kept in record_of(small).kept.items():
        present[name] = torch.zeros(sizes.groups[name], dtype=torch.float64)
        present[name][kept] = 1
    counted = thinrnn.count(small)
    parameters = {id(p): p.numel() for p in small.parameters()}
    assert float(sizes.total(present, "params")) == counted.params == sum(parameters.values())
    assert float(sizes.total(present, "macs")) == counted.macs


@pytest.mark.filterwarnings("ignore:all .* are closed")
@A_QUARTER
@given(shapes(), st.lists(gate_settings(), min_size=3, max_size=3))
def test_zeros_and_ones_give_the_size_of_the_small_model(
    shape: Shape, settings: list[GateSetting]
) -> None:
    model, _ = gated_model(shape)
    for setting in settings:
        setting.apply(model)
        assert_counted(model, thinrnn.compact(model))


@pytest.mark.filterwarnings("ignore:all .* are closed")
def test_convolutions_and_normalisation() -> None:
    torch.manual_seed(0)
    model = Convolved().eval()
    plan = thinrnn.find_groups(model, torch.randn(2, 5, 4))
    thinrnn.attach_(model, plan)
    assert len(plan) == 4, str(plan)  # x, the residual channels, both directions
    for seed in range(20):
        GateSetting(seed, 0.4, 0.2, extreme=False, whole_group=False).apply(model)
        assert_counted(model, thinrnn.compact(model))


@A_QUARTER
@given(shapes(layers=1, hidden=2, projected=1, inputs=2), st.integers(0, 1000))
def test_probabilities_give_the_expected_size(shape: Shape, seed: int) -> None:
    """By going through every combination of neurons that may be there."""
    model, _ = gated_model(shape)
    sizes = attached(model).sizes
    generator = torch.Generator().manual_seed(seed)
    p = {n: torch.rand(k, generator=generator).double() for n, k in sizes.groups.items()}
    flat = torch.cat(list(p.values())).tolist()
    assume(len(flat) <= 9)
    expected = dict.fromkeys(("params", "macs"), 0.0)
    for mask in itertools.product([0.0, 1.0], repeat=len(flat)):
        chance = math.prod(q if there else 1 - q for q, there in zip(flat, mask, strict=True))
        parts = torch.tensor(mask, dtype=torch.float64).split(list(sizes.groups.values()))
        present = dict(zip(sizes.groups, parts, strict=True))
        for what in expected:
            expected[what] += chance * float(sizes.total(present, what))
    for what, value in expected.items():
        assert float(sizes.total(p, what)) == pytest.approx(value, rel=1e-9)
