"""Milliseconds as a target: times over sizes are measured once and fitted near the goal."""

import json
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import thinrnn
from thinrnn._gates.attach import attached
from thinrnn._penalties.limits import read_milliseconds
from thinrnn.errors import TargetError
from thinrnn.latency import non_negative_least_squares
from thinrnn.timing import Timing

EXAMPLE = torch.zeros(5, 1, 12)


class Forecaster(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(12, 40, num_layers=2)
        self.head = nn.Linear(40, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0])


def forecaster(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = Forecaster()
    plan = thinrnn.find_groups(model, torch.randn(5, 2, 12))
    return thinrnn.attach_(model, plan)


def true_milliseconds(model: nn.Module) -> float:
    """A machine on which recurrent products are slow, and wide layers faster per product."""
    time = 0.05
    for name, p in model.named_parameters():
        if "weight" in name:
            time += p.numel() * (3e-5 if "_hh" in name else 1e-5) * (1 - p.shape[1] / 400)
    return time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replace the clock by the machine above; the list has how many models each call timed."""
    timed: list[int] = []

    def time(self: thinrnn.Latency, models: dict[str, nn.Module]) -> dict[str, Timing]:
        timed.append(len(models))
        found = {name: true_milliseconds(model) for name, model in models.items()}
        return {name: Timing(ms, ms, ms, 1) for name, ms in found.items()}

    monkeypatch.setattr(thinrnn.Latency, "time", time)
    return timed


@pytest.mark.parametrize("goal", ["0.2 ms", "200 us", "0.15ms", "0.0001 s"])
def test_the_small_model_takes_the_time_of_the_goal(clock, tmp_path, goal):
    model = forecaster()
    latency = thinrnn.Latency(EXAMPLE, runtime="torch", file=tmp_path / "times.json")
    target = thinrnn.Target(model, latency=goal, on=latency, steps=10)
    small = thinrnn.compact(model, target=target)
    assert true_milliseconds(small) == pytest.approx(read_milliseconds(goal), rel=0.1)


def test_the_limit_comes_down_in_milliseconds_and_with_other_limits(clock, tmp_path):
    model = forecaster()
    full = thinrnn.count(thinrnn.compact(model)).params
    latency = thinrnn.Latency(EXAMPLE, runtime="torch", file=tmp_path / "times.json")
    target = thinrnn.Target(
        model, latency="0.2 ms", on=latency, params=0.5, steps=10, score="random"
    )
    assert set(target.limit) == {"params", "latency"}
    for _ in range(10):
        target.step()
    assert target.limit["latency"] == 0.2
    small = thinrnn.compact(model)
    assert thinrnn.count(small).params <= 0.5 * full
    assert true_milliseconds(small) <= 0.22


def test_times_are_measured_once(clock, tmp_path):
    file = tmp_path / "times.json"
    targets = [
        thinrnn.Target(
            forecaster(seed),
            latency="0.2 ms",
            on=thinrnn.Latency(EXAMPLE, runtime="torch", file=file),
        )
        for seed in (0, 1)
    ]
    assert len(clock) == 2 and sum(clock) == len(json.loads(file.read_text())["points"])
    first, second = targets
    assert first.goal == second.goal and first.full == second.full


def test_the_table_is_kept_in_the_cache(clock, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    on = thinrnn.Latency(EXAMPLE, runtime="torch")
    thinrnn.Target(forecaster(), latency="0.2 ms", on=on)
    assert len(list(tmp_path.glob("thinrnn/latency-*.json"))) == 1


def test_a_checkpoint_goes_on_with_the_times_it_began_with(clock, tmp_path):
    def target(file: str) -> thinrnn.Target:
        on = thinrnn.Latency(EXAMPLE, runtime="torch", file=tmp_path / file)
        return thinrnn.Target(forecaster(), latency="0.2 ms", on=on, steps=10)

    first = target("one.json")
    table = json.loads((tmp_path / "one.json").read_text())
    for point in table["points"]:
        point["milliseconds"] *= 1.2
    (tmp_path / "two.json").write_text(json.dumps(table))
    second = target("two.json")
    assert second.full != first.full
    second.load_state_dict(first.state_dict())
    assert second.full == first.full
    weights = [t.sizes.weights["latency"] for t in (first, second)]
    assert torch.equal(*weights)


def change(name: str, value: object) -> Callable[[dict], None]:
    def edit(table: dict) -> None:
        table[name] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (change("points", [{"kept": {}, "milliseconds": -1}]), "milliseconds"),
        (change("points", 3), "points"),
        (change("about", {"processor": "another"}), "another"),
        (change("thinrnn_latency", 2), "thinrnn_latency"),
    ],
)
def test_a_wrong_table_is_refused(clock, tmp_path, edit, reason):
    file = tmp_path / "times.json"
    on = thinrnn.Latency(EXAMPLE, runtime="torch", file=file)
    thinrnn.Target(forecaster(), latency="0.2 ms", on=on)
    table = json.loads(file.read_text())
    edit(table)
    file.write_text(json.dumps(table))
    with pytest.raises(TargetError, match=reason):
        thinrnn.Target(forecaster(), latency="0.2 ms", on=on)


@pytest.mark.parametrize("text", ["2", "ms", "-1 ms", "0 ms", "2 m", "1e9 hours", "", "nan ms"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(TargetError, match="'2 ms'"):
        read_milliseconds(text)


def test_what_does_not_go_together_is_refused(clock, tmp_path):
    model = forecaster()
    on = thinrnn.Latency(EXAMPLE, runtime="torch", file=tmp_path / "times.json")
    with pytest.raises(TargetError, match="go together"):
        thinrnn.Target(model, latency="2 ms")
    with pytest.raises(TargetError, match="go together"):
        thinrnn.Target(model, params=0.5, on=on)
    with pytest.raises(TargetError, match="still takes about"):
        thinrnn.Target(model, latency="1 us", on=on)
    with pytest.raises(TargetError, match="two of"):
        thinrnn.Target(model, latency="0.2 ms", on=on, params=0.5, macs=0.5)
    with pytest.raises(TargetError, match="streaming"):
        thinrnn.Latency(EXAMPLE, runtime="torch", streaming=True)
    with pytest.raises(TargetError, match="runtime"):
        thinrnn.Latency(EXAMPLE, runtime="abacus")  # type: ignore[arg-type]


def test_a_model_that_has_lost_neurons_cannot_be_measured_over_sizes(clock, tmp_path):
    model = forecaster()
    thinrnn.gates(model)["rnn.l0"].log_alpha.data[:5] = -9.0
    thinrnn.shrink_(model)
    on = thinrnn.Latency(EXAMPLE, runtime="torch", file=tmp_path / "times.json")
    with pytest.raises(TargetError, match="shrink_"):
        thinrnn.Target(model, latency="0.2 ms", on=on)


@pytest.mark.parametrize("streaming", [False, True])
def test_real_calls_are_timed(streaming):
    pytest.importorskip("onnxruntime", reason="times a file in ONNX Runtime")
    on = thinrnn.Latency(EXAMPLE, streaming=streaming)
    timing = on.time({"model": nn.LSTM(12, 8)})["model"]
    assert 0 < timing.low <= timing.median <= timing.high


def test_a_fit_without_negative_numbers():
    torch.manual_seed(0)
    rows = torch.rand(30, 5).double()
    wanted = torch.tensor([1.0, 0.0, 2.0, 0.0, 0.5]).double()
    assert torch.allclose(non_negative_least_squares(rows, rows @ wanted), wanted, atol=1e-3)
    found = non_negative_least_squares(rows, rows @ (wanted - 1.0))
    slope = rows.T @ (rows @ found - rows @ (wanted - 1.0))  # the conditions of a minimum
    assert (found >= 0).all() and (slope >= -1e-6).all() and (slope * found).abs().max() < 1e-6


def test_gates_of_the_model_are_left_alone(clock, tmp_path):
    model = forecaster()
    before = {n: g.log_alpha.clone() for n, g in attached(model).gates.items()}
    on = thinrnn.Latency(EXAMPLE, runtime="torch", file=tmp_path / "times.json")
    thinrnn.Target(model, latency="0.2 ms", on=on)
    after = thinrnn.gates(model)
    assert all(torch.equal(before[name], after[name].log_alpha) for name in before)


def test_a_trainer_that_knows_its_length_takes_milliseconds_too(clock, tmp_path):
    torch.manual_seed(0)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters())
    latency = thinrnn.Latency(EXAMPLE, runtime="torch", file=tmp_path / "times.json")
    plan = thinrnn.find_groups(model, torch.randn(5, 2, 12))
    target = {"latency": "0.2 ms", "on": latency, "score": "random"}
    pruner = thinrnn.Pruner(model, optimizer, target=target, plan=plan)
    pruner.total_steps = 20
    for _ in range(20):
        model(torch.randn(5, 2, 12)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        pruner.step()
    pruner.finish_()
    assert true_milliseconds(model) == pytest.approx(0.2, rel=0.1)
