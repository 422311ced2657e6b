"""How prune shares a size: the outputs decide between groups, the scores within them."""

import pytest
import torch
from grids import A_QUARTER, Shape, shapes
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

import thinrnn
from thinrnn._calibration.distill import Kind
from thinrnn._calibration.prune import Calibration
from thinrnn._calibration.sharing import OutputError, shared

pytestmark = pytest.mark.filterwarnings("ignore:.*fewer than", "ignore:.*never vary")


@A_QUARTER
@given(shapes(), st.integers(0, 1000))
def test_errors_are_measured_anew_for_every_choice(shape: Shape, seed: int) -> None:
    model = shape.model(seed)
    calibration = Calibration(model, [shape.arguments(seed + i) for i in range(3)])
    assume(calibration.plan.groups)
    parts = calibration.model, calibration.matrices, calibration.moments, calibration.held
    error_of = OutputError(*parts)
    whole = {g.name: torch.ones(g.size).bool() for g in calibration.plan}
    half = {g.name: torch.arange(g.size) < max(1, g.size // 2) for g in calibration.plan}
    assert error_of(whole) < 1e-15
    first = error_of(half)
    for name, mask in whole.items():
        error_of.with_group(name, mask)
    assert error_of.with_group(name, half[name]) == pytest.approx(first, rel=1e-9, abs=1e-15)
    assert error_of(whole) < 1e-15
    outputs = calibration.agreement(calibration.model)
    assert outputs.error == 0  # the model that is measured is a copy


class Sum(nn.Module):
    """Two recurrent parts; what the second one adds is steep, but small."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.GRU(4, 24), nn.GRU(4, 24)
        self.last, self.steep = nn.Linear(24, 3), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        small = 0.01 * torch.sin(300 * self.steep(self.second(x)[0]))
        output: Tensor = self.last(self.first(x)[0]) + small
        return output


def test_the_outputs_decide_between_groups_not_their_slopes() -> None:
    torch.manual_seed(0)
    model = Sum().double()
    calls = [torch.randn(20, 8, 4).double() for _ in range(5)]
    plan = thinrnn.find_groups(model, calls[0]).only("first.l0", "second.l0")
    calibration = Calibration(model, calls, plan=plan)
    errors = calibration.errors("activation")
    by_score = calibration.chosen(errors, params=0.5, macs=None, keep={})
    report = thinrnn.pruning_report(calibration.prune(params=0.5, score="activation"))
    kept = {name: after for name, (_, after) in report.sizes.items()}
    assert kept["second.l0"] < int(by_score["second.l0"].sum())
    assert kept["first.l0"] > int(by_score["first.l0"].sum())


class Shift(nn.Module):
    """Two recurrent parts; the second one adds the same to all outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.GRU(4, 24), nn.GRU(4, 24)
        self.last, self.shift = nn.Linear(24, 3), nn.Linear(24, 1)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.last(self.first(x)[0]) + 10 * self.shift(self.second(x)[0])
        return output


def test_what_outputs_are_decides_what_counts() -> None:
    torch.manual_seed(0)
    model = Shift().double()
    calls = [torch.randn(20, 8, 4).double() for _ in range(5)]
    plan = thinrnn.find_groups(model, calls[0]).only("first.l0", "second.l0")
    kept: dict[str, int] = {}
    kinds: tuple[Kind, ...] = ("square", "logits")
    for outputs in kinds:
        small = thinrnn.prune(model, calls, params=0.5, outputs=outputs, plan=plan)
        kept[outputs] = thinrnn.pruning_report(small).sizes["second.l0"][1]
    assert kept["logits"] < 12 < kept["square"]


def test_within_a_group_the_scores_decide_and_no_choice_is_worse_than_theirs() -> None:
    torch.manual_seed(0)
    model = nn.LSTM(6, 20, num_layers=2).double()
    calls = [torch.randn(20, 8, 6).double() for _ in range(5)]
    calibration = Calibration(model, calls)
    errors = calibration.errors("reconstruct")
    parts = calibration.model, calibration.matrices, calibration.moments, calibration.held
    error_of = OutputError(*parts)

    def choose(scaled: dict[str, Tensor]) -> dict[str, Tensor]:
        return calibration.chosen(scaled, params=0.4, macs=None, keep={})

    chosen = shared(errors, choose, error_of)
    assert error_of(chosen) <= error_of(choose(errors)) * (1 + 1e-9)
    for name, mask in chosen.items():
        worst_kept = errors[name][mask].min()
        assert all(error <= worst_kept for error in errors[name][~mask])
    assert calibration.sizes.total({n: m.double() for n, m in chosen.items()}) <= 0.4 * (
        thinrnn.count(model).params
    )
