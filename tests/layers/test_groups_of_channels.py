"""Layers in groups: grouped and depthwise convolutions, transposed ones, GRUs side by side."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import thinrnn
from thinrnn._model.isolation import run

KINDS = {
    "Conv1d": nn.Conv1d,
    "Conv2d": nn.Conv2d,
    "ConvTranspose1d": nn.ConvTranspose1d,
    "ConvTranspose2d": nn.ConvTranspose2d,
}
CHANNELS = ((8, 8, 8), (8, 16, 8), (8, 12, 2), (6, 6, 3), (8, 6, 1))  # in, out, groups


class Front(nn.Module):
    def __init__(self, kind: str, channels: tuple[int, int, int], norm: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        m, n, groups = channels
        self.first = nn.Conv2d(2, m, 3, padding=1)
        self.conv = KINDS[kind](m, n, 2, stride=2, groups=groups)
        if norm:
            self.conv = nn.utils.parametrizations.weight_norm(self.conv)
        self.is_1d = kind.endswith("1d")
        self.rnn = nn.GRU(n, 5, batch_first=True)
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:  # (B, 2, T, F)
        x = self.first(x).tanh()
        x = self.conv(x.mean(-1) if self.is_1d else x)
        x = x if self.is_1d else x.mean(-1)
        return self.head(self.rnn(x.transpose(1, 2))[0])


def small_of(model: nn.Module, x: Any, seed: int = 0, **options: Any) -> tuple[Any, nn.Module]:
    plan = thinrnn.find_groups(model, x, **options)
    thinrnn.attach_(model, plan)
    generator = torch.Generator().manual_seed(seed)
    for gate in thinrnn.gates(model).values():
        soft = torch.randn(gate.size, generator=generator).double()
        closed = torch.rand(gate.size, generator=generator) < 0.5
        gate.log_alpha = torch.where(closed, -9.0, soft)
    small = thinrnn.compact(model)
    assert thinrnn.verify(model, small, x) < 1e-10
    return plan, small


@pytest.mark.filterwarnings("ignore:all .* are closed")
@settings(max_examples=max(6, settings.default.max_examples // 10))
@given(st.sampled_from(sorted(KINDS)), st.sampled_from(CHANNELS), st.booleans(), st.integers(0, 99))
def test_convolutions_in_groups(
    kind: str, channels: tuple[int, int, int], norm: bool, seed: int
) -> None:
    model = Front(kind, channels, norm).double().eval()
    x = torch.randn(2, 2, 4, 4, dtype=torch.float64)
    m, n, groups = channels
    full = thinrnn.count(model, x).example_macs
    plan, small = small_of(model, x, seed)
    sizes = {group.name: group.size for group in plan}
    if groups == m:  # whole groups
        assert sizes["first+conv"] == m
    else:
        assert sizes["first"] == m // groups
        assert sizes["conv"] == n // groups or n // groups == 2
    conv = small.conv
    assert conv.in_channels == small.first.out_channels
    assert conv.out_channels == small.rnn.input_size
    assert conv.groups == (conv.in_channels if groups == m else groups)
    assert 0 < thinrnn.count(small, x).example_macs <= full


def test_what_only_goes_together_in_many_is_refused_by_name() -> None:
    model = Front("ConvTranspose1d", (6, 3, 3), norm=False)
    plan = thinrnn.find_groups(model, torch.randn(2, 2, 4, 4))
    reasons = {refusal.group.name: refusal.reason for refusal in plan.refused}
    assert reasons["conv"] == "3 neurons of 'conv' can only go together"


class GroupedGRU(nn.Module):
    """As in DeepFilterNet: GRUs for parts of the features, whose outputs may be shuffled."""

    def __init__(self, n: int, m: int, groups: int, shuffled: bool) -> None:
        super().__init__()
        self.groups, self.shuffled = groups, shuffled
        self.layers = nn.ModuleList(
            nn.GRU(n // groups, m // groups, batch_first=True) for _ in range(groups)
        )

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        states = [None] * self.groups if h is None else list(h.split(1))
        parts = zip(self.layers, x.chunk(self.groups, -1), states, strict=True)
        out, new = zip(*(layer(part, state) for layer, part, state in parts), strict=True)
        x = torch.cat(out, -1)
        if self.shuffled:
            x = x.unflatten(-1, (-1, self.groups)).transpose(-1, -2).flatten(-2)
        return x, torch.cat(new)


class Enhancer(nn.Module):
    def __init__(self, shuffled: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.front = nn.Linear(5, 8)
        self.grouped = nn.ModuleList(
            [GroupedGRU(8, 12, 2, shuffled), GroupedGRU(12, 8, 2, shuffled)]
        )
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor, states: Any = (None, None)) -> Any:
        x, new = self.front(x), []
        for layer, state in zip(self.grouped, states, strict=True):
            x, state = layer(x, state)
            new.append(state)
        return self.head(x), *new


@pytest.mark.filterwarnings("ignore:all .* are closed")
@pytest.mark.parametrize("shuffled", [False, True])
def test_grus_side_by_side(shuffled: bool) -> None:
    model = Enhancer(shuffled).double().eval()
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    plan, small = small_of(model, (x, model(x)[1:]), states=["1", "2"])
    sizes = [group.size for group in plan]
    assert sizes == [5, 4, 3 if shuffled else 6, 4], str(plan)
    outputs = []
    for one in (model, small):
        first, *states = one(x)
        outputs.append(torch.cat([first, run(one, ((x, states), {}))[0]]))
    torch.testing.assert_close(*outputs, rtol=1e-10, atol=1e-10)
