"""prune: smaller models from calibration data, over the grid of layers."""

from typing import Any

import pytest
import torch
from cell_grid import CellShape, cell_shapes
from grids import A_QUARTER, Shape, shapes
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

import thinrnn
from thinrnn._calibration.prune import Calibration
from thinrnn.errors import CalibrationError, PlanError, TargetError, ThinRNNError

pytestmark = pytest.mark.filterwarnings("ignore:.*fewer than", "ignore:.*never vary")


class Tagger(nn.Module):
    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.emb = nn.Embedding(30, 10)
        self.lstm = nn.LSTM(10, 12, num_layers=2)
        self.out = nn.Linear(12, 10)
        self.head = nn.Linear(10, 30)
        if tied:
            self.head.weight = self.emb.weight

    def forward(self, words: Tensor) -> Tensor:
        scores: Tensor = self.head(self.out(self.lstm(self.emb(words))[0]))
        return scores


def words(calls: int = 5) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randint(30, (12, 8)) for _ in range(calls)]


def tagger(tied: bool = False) -> Tagger:
    torch.manual_seed(0)
    return Tagger(tied).double()


def check(model: nn.Module, calls: list[Any], **size: Any) -> nn.Module:
    """Prune, and check what must hold for any model."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    small = thinrnn.prune(model, calls, **size)
    report = thinrnn.pruning_report(small)
    assert report.difference < 1e-10
    for readers in report.readers.values():
        assert all(reader.refitted <= reader.dropped for reader in readers)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert str(report)
    return small


@A_QUARTER
@given(shapes(), st.integers(0, 1000), st.booleans())
def test_every_kind_of_layer(shape: Shape, seed: int, sequential: bool) -> None:
    model = shape.model(seed)
    calls = [shape.arguments(seed + i) for i in range(3)]
    plan = thinrnn.find_groups(model, calls[0])
    keep = {g.name: max(1, g.size // 2) for g in plan}
    assume(keep)
    small = check(model, calls, keep=keep, plan=plan, sequential=sequential)
    assert thinrnn.count(small).params <= thinrnn.count(model).params


@A_QUARTER
@given(cell_shapes(), st.integers(0, 1000))
def test_cells(shape: CellShape, seed: int) -> None:
    model = shape.model(seed)
    calls = [shape.arguments(seed + i) for i in range(3)]
    plan = thinrnn.find_groups(model, calls[0])
    assume(plan.groups)
    check(model, calls, keep={g.name: max(1, g.size // 2) for g in plan}, plan=plan)


@pytest.mark.parametrize("depth", [1, 3])
def test_highway_networks(depth: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), thinrnn.RHN(8, 10, depth=depth)).double()
    calls = [torch.randn(9, 4, 3).double() for _ in range(5)]
    check(model, calls, params=0.85)
    check(model, calls, params=0.85, sequential=True)


def test_convolutions() -> None:
    torch.manual_seed(0)

    class Spotter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Sequential(nn.Conv1d(3, 8, 3), nn.ReLU(), nn.Conv1d(8, 6, 3, stride=2))
            self.gru = nn.GRU(6, 8, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.gru(self.conv(x).transpose(1, 2))[0]
            return output

    small = check(
        Spotter().double(), [torch.randn(4, 3, 20).double() for _ in range(5)], params=0.7
    )
    assert "conv.0" in thinrnn.pruning_report(small).sizes


@pytest.mark.parametrize("score", ["reconstruct", "activation", "magnitude", "taylor"])
@pytest.mark.parametrize("tied", [False, True])
def test_sizes_and_scores(score: Any, tied: bool) -> None:
    def loss(output: Tensor, call: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output.flatten(0, 1), call.flatten())

    model = tagger(tied)
    full = thinrnn.count(model)
    more = {"score": score, "loss": loss if score == "taylor" else None}
    small = check(model, words(), params=0.6, **more)
    assert 0.5 * full.params < thinrnn.count(small).params <= 0.6 * full.params
    small = check(model, words(), macs=0.5, params=0.55, **more)
    assert thinrnn.count(small).macs <= 0.5 * full.macs
    assert thinrnn.count(small).params <= 0.55 * full.params


def test_numbers_for_some_groups_leave_the_others_whole() -> None:
    small = check(tagger(), words(), keep={"lstm.l0": 5})
    assert isinstance(small, Tagger)
    assert [part.hidden_size for part in small.lstm.children()] == [5, 12]
    both = check(tagger(), words(), keep={"lstm.l0": 5}, params=0.7)
    assert both.lstm.l0.hidden_size == 5  # type: ignore[union-attr]
    assert thinrnn.count(both).params <= 0.7 * thinrnn.count(tagger()).params


def test_copies_of_neurons_go_at_no_loss() -> None:
    model = tagger()
    rnn = model.lstm
    with torch.no_grad():
        for gate in range(4):  # neurons 10 and 11 do what 0 and 1 do
            for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
                rows = getattr(rnn, name)[12 * gate : 12 * gate + 12]
                rows[10:] = rows[:2]
    small = check(model, words(), keep={"lstm.l0": 10})
    assert thinrnn.pruning_report(small).agreement.error < 1e-8
    for call in words():
        torch.testing.assert_close(small(call), model(call), rtol=1e-8, atol=1e-8)


def test_a_neuron_that_is_the_sum_of_two_others_goes_at_no_loss() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3), nn.GRU(3, 4)).double()
    with torch.no_grad():
        for tensor in (model[0].weight, model[0].bias):
            tensor[7] = tensor[2] + tensor[4]
    calls = [torch.randn(20, 6).double() for _ in range(5)]
    small = check(model, calls, keep={"0": 7})
    assert thinrnn.pruning_report(small).agreement.error < 1e-8


@pytest.mark.parametrize("sequential", [False, True])
def test_refitting_beats_dropping(sequential: bool) -> None:
    calibration = Calibration(tagger(), words(10))
    dropped = calibration.prune(params=0.6, refitted=False)
    refitted = calibration.prune(params=0.6, sequential=sequential)
    errors = [thinrnn.pruning_report(small).agreement.error for small in (refitted, dropped)]
    assert errors[0] < 0.7 * errors[1]


@pytest.mark.parametrize("score", ["reconstruct", "activation"])
def test_a_part_that_hardly_moves_the_outputs_loses_most(score: Any) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.loud, self.quiet = nn.GRU(4, 12), nn.GRU(4, 12)
            self.heads = nn.ModuleList(nn.Linear(12, 3) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.heads[0](self.loud(x)[0]) + 1e-3 * self.heads[1](self.quiet(x)[0])
            return y

    torch.manual_seed(0)
    small = check(
        Two().double(), [torch.randn(20, 8, 4).double() for _ in range(5)], params=0.6, score=score
    )
    kept = {name: size[1] for name, size in thinrnn.pruning_report(small).sizes.items()}
    assert kept["quiet.l0"] < 0.6 * kept["loud.l0"]


def test_models_without_gradients_are_pruned_as_well() -> None:
    class Frozen(Tagger):
        def forward(self, words: Tensor) -> Tensor:
            with torch.no_grad():
                return super().forward(words)

    torch.manual_seed(0)
    check(Frozen().double(), words(), params=0.6)


def test_the_order_of_the_calls_does_not_matter() -> None:
    calls = words(10)
    other = [*calls[7::-1], *calls[:7:-1]]  # the last two are held out
    first, second = (thinrnn.prune(tagger(), order, params=0.6) for order in (calls, other))
    torch.testing.assert_close(first(calls[0]), second(calls[0]), rtol=1e-8, atol=1e-8)


def test_a_pruned_model_is_saved_and_loaded(tmp_path: Any) -> None:
    small = thinrnn.prune(tagger(), words(), params=0.5)
    thinrnn.save(small, tmp_path)
    loaded = thinrnn.load_(tagger(), tmp_path)
    torch.testing.assert_close(loaded(words()[0]), small(words()[0]), rtol=1e-5, atol=1e-5)


def test_a_float32_model_stays_one() -> None:
    small = thinrnn.prune(Tagger(), words(), params=0.5)
    assert {p.dtype for p in small.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("data", "options", "error"),
    [
        ([], {"params": 0.5}, CalibrationError),
        ([torch.randn(3, 2)], {"params": 0.5}, ThinRNNError),
        (words()[0], {"params": 0.5}, CalibrationError),
        (None, {"params": 0.5}, CalibrationError),
        ({"words": words()[0]}, {"params": 0.5}, CalibrationError),
        ([*words(), torch.zeros(12, 0).long()], {"params": 0.5}, CalibrationError),
        (words(), {}, TargetError),
        (words(), {"params": 1e-9}, TargetError),
        (words(), {"keep": {"lstm.l0": 13}}, TargetError),
        (words(), {"keep": {"emb": 10, "lstm.l0": 12, "lstm.l1": 12}, "params": 0.5}, TargetError),
        (words(), {"keep": {"lstm.l0": 0}}, TargetError),
        (words(), {"keep": {"lstm.l9": 2}}, PlanError),
        (words(), {"params": 0.5, "score": "luck"}, CalibrationError),
        (words(), {"params": 0.5, "score": "taylor"}, CalibrationError),
    ],
)
def test_bad_input_is_refused(data: Any, options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        thinrnn.prune(tagger(), data, **options)


def test_a_later_call_that_the_model_cannot_take_is_refused() -> None:
    with pytest.raises(CalibrationError, match="call 5"):
        thinrnn.prune(tagger(), [*words(4), torch.full((3, 2), 99)], params=0.5)


def test_activations_must_be_finite() -> None:
    model = tagger()
    with torch.no_grad():
        model.emb.weight[3] = torch.nan
    calls = [torch.where(call == 3, 0, call) for call in words()]
    calls[2][0, 0] = 3
    with pytest.raises(CalibrationError, match=r"not finite at 'lstm.weight_ih_l0' in .* call 3"):
        thinrnn.prune(model, calls, params=0.5)


@pytest.mark.filterwarnings("default")
def test_too_little_data_and_dead_neurons_are_told() -> None:
    with pytest.warns(UserWarning, match="fewer than"):
        thinrnn.prune(tagger(), [torch.randint(30, (2, 2))], params=0.6)
    with pytest.warns(UserWarning, match="never vary"):
        thinrnn.prune(tagger(), [torch.zeros(12, 8).long()] * 5, params=0.5)


def test_only_pruned_models_have_a_report() -> None:
    with pytest.raises(thinrnn.errors.PlanError):
        thinrnn.pruning_report(tagger())
