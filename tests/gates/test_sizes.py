"""Sizes of a model as functions of who is there: exact with zeros and ones, expected in between."""

import itertools
import math
from typing import Any

import pytest
import torch
from grids import A_QUARTER, GateSetting, Shape, gate_settings, gated_model, shapes
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import thinrnn
from thinrnn._gates.attach import attached
from thinrnn._layers.applications import applications
from thinrnn._model.isolation import run
from thinrnn._model.tree import call_arguments
from thinrnn._surgery.provenance import record_of
from thinrnn.nn.rnn_cell import ProjectedLSTM


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


def assert_counted(model: nn.Module, small: nn.Module, example: Any) -> None:
    sizes = attached(model).sizes
    present = {}
    for name, kept in record_of(small).kept.items():
        present[name] = torch.zeros(sizes.groups[name], dtype=torch.float64)
        present[name][kept] = 1
    counted = thinrnn.count(small, example)
    parameters = {id(p): p.numel() for p in small.parameters()}
    assert float(sizes.total(present, "params")) == counted.params == sum(parameters.values())
    steps = applications(small, call_arguments(example)).steps
    macs = float(sizes.total(present, "macs")) * steps
    assert macs == pytest.approx(counted.example_macs, rel=1e-12)
    assert counted.macs == round(macs / steps)
    with FlopCounterMode(display=False) as by_torch:
        run(small, call_arguments(example))
    padded = any(isinstance(module, ProjectedLSTM) for module in small.modules())
    assert padded or counted.example_macs == by_torch.get_total_flops() / 2


@pytest.mark.filterwarnings("ignore:all .* are closed")
@A_QUARTER
@given(shapes(), st.lists(gate_settings(), min_size=3, max_size=3))
def test_zeros_and_ones_give_the_size_of_the_small_model(
    shape: Shape, settings: list[GateSetting]
) -> None:
    model, _ = gated_model(shape)
    for setting in settings:
        setting.apply(model)
        assert_counted(model, thinrnn.compact(model), shape.arguments())


class Speech(nn.Module):
    """Layers that are applied at different rates: frames, halved frames, the last state."""

    def __init__(self, stride: int, kernel: int, depthwise: bool, up: bool, cell: str) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 6, kernel, stride=stride, padding=1)
        self.deep = nn.Conv1d(6, 6, kernel, padding=1, groups=6) if depthwise else nn.Identity()
        self.up = nn.ConvTranspose1d(6, 5, 2, stride=2) if up else nn.Conv1d(6, 5, 1)
        self.rnn: nn.Module = nn.LSTM(5, 6, batch_first=True, bidirectional=True)
        if cell == "cell":
            self.rnn = nn.GRUCell(5, 12)
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:  # (B, 4, T)
        x = self.up(self.deep(self.conv(x)).relu()).transpose(1, 2)
        if isinstance(self.rnn, nn.LSTM):
            return self.head(self.rnn(x)[0][:, -1])
        h = x.new_zeros(len(x), 12)
        for step in x.unbind(1):
            h = self.rnn(step, h)
        return self.head(h)


@pytest.mark.filterwarnings("ignore:all .* are closed")
@settings(max_examples=max(3, settings.default.max_examples // 12))
@given(
    st.integers(1, 2),
    st.integers(2, 3),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["lstm", "cell"]),
    st.integers(6, 9),
)
def test_mult_adds_are_those_of_the_call(
    stride: int, kernel: int, depthwise: bool, up: bool, cell: str, steps: int
) -> None:
    """`assert_counted` lets torch count the products of a real call, too."""
    torch.manual_seed(0)
    model = Speech(stride, kernel, depthwise, up, cell).eval().double()
    x = torch.randn(2, 4, steps).double()
    plan = thinrnn.find_groups(model, x)
    assert thinrnn.Plan.from_json(plan.to_json()) == plan
    thinrnn.attach_(model, plan)
    GateSetting(steps, 0.4, 0.2, extreme=False, whole_group=False).apply(model)
    assert_counted(model, thinrnn.compact(model), x)
    full = thinrnn.count(thinrnn.detach_(model), x).example_macs
    small = thinrnn.count(thinrnn.magnitude_(model, plan, macs=0.5), x).example_macs
    assert full is not None and small is not None and 0.4 * full < small <= 0.5 * full


@pytest.mark.filterwarnings("ignore:all .* are closed")
def test_convolutions_and_normalisation() -> None:
    torch.manual_seed(0)
    model = Convolved().eval().double()
    x = torch.randn(2, 5, 4).double()
    plan = thinrnn.find_groups(model, x)
    thinrnn.attach_(model, plan)
    assert len(plan) == 4, str(plan)  # x, the residual channels, both directions
    for seed in range(20):
        GateSetting(seed, 0.4, 0.2, extreme=False, whole_group=False).apply(model)
        assert_counted(model, thinrnn.compact(model), x)


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
