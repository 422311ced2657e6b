"""Pruner: a training loop prunes its model, stops in the middle and goes on as if it had not."""

import copy
import io
import itertools
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thinrnn
from thinrnn.errors import GateError, PlanError, TargetError

STEPS = 40
WAYS: dict[str, dict[str, Any]] = {
    "target": {"target": {"params": 0.3, "steps": 25}},
    "later": {"target": {"params": 0.3, "steps": 20}, "start_epoch": 1, "start_step": 12},
    "l0": {"l0": 2e-4, "gate_lr": 0.1, "start_step": 5},
    "sizes": {"target": {"params": [0.6, 0.3], "steps": 12, "finish": 6}},
}


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 16)
        self.rnn = nn.LSTM(16, 16, num_layers=2, bidirectional=True)
        self.head = nn.Linear(32, 40)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.rnn(self.embedding(x))[0])
        return out


class Training:
    """A loop with a learning-rate schedule, which no added parameter group may break."""

    def __init__(self, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = Tagger().double()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, STEPS)
        self.pruner = thinrnn.Pruner(self.model, self.optimizer, **options)

    def run(self, steps: Iterable[int]) -> None:
        for step in steps:
            torch.manual_seed(step)
            x = torch.randint(40, (6, 8))
            loss = nn.functional.cross_entropy(self.model(x).flatten(0, 1), x.flatten())
            (loss + self.pruner.penalty()).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.pruner.step()
            self.schedule.step()
            if step % 10 == 9:
                self.pruner.end_epoch()


@pytest.fixture(scope="module")
def plan() -> thinrnn.Plan:
    return thinrnn.find_groups(Tagger(), torch.randint(40, (6, 8)))


@pytest.mark.parametrize(
    ("way", "stop"), [*itertools.product(WAYS, [7, 25]), ("sizes", 16), ("sizes", 20)]
)
def test_a_resumed_training_ends_with_the_same_weights(
    way: str, stop: int, plan: thinrnn.Plan
) -> None:
    whole = Training(**WAYS[way], plan=plan)
    whole.run(range(stop))
    file = io.BytesIO()
    parts = {"model": whole.model, "optimizer": whole.optimizer, "schedule": whole.schedule}
    torch.save({name: part.state_dict() for name, part in parts.items()}, file)
    whole.run(range(stop, STEPS))

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed = Training(**WAYS[way], plan=plan)
    resumed.model.load_state_dict(saved["model"])
    resumed.optimizer.load_state_dict(saved["optimizer"])
    resumed.schedule.load_state_dict(saved["schedule"])
    resumed.run(range(stop, STEPS))

    expected, found = whole.model.state_dict(), resumed.model.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert whole.pruner.numbers() == resumed.pruner.numbers()


def test_finish_leaves_a_small_plain_model_in_place(tmp_path: Any) -> None:
    training = Training(**WAYS["target"])
    training.run(range(STEPS))
    assert training.pruner.is_final
    x = torch.randint(40, (6, 8))
    with torch.no_grad():
        before = training.model.eval()(x)
    assert training.pruner.finish_() < 1e-10
    with torch.no_grad():
        torch.testing.assert_close(training.model(x), before, rtol=0, atol=1e-10)
    small = training.model
    assert not [name for name in small.state_dict() if "thinrnn" in name]
    full = thinrnn.count(Tagger()).params
    assert 0.27 * full < thinrnn.count(small).params <= 0.3 * full
    thinrnn.save(small, tmp_path / "small")
    again = thinrnn.load_(Tagger().double(), tmp_path / "small").eval()
    with torch.no_grad():
        assert torch.equal(again(x), small(x))


def test_several_sizes_are_saved_on_the_way(plan: thinrnn.Plan, tmp_path: Any) -> None:
    training = Training(target={"params": [0.6, 0.3]}, plan=plan, folder=tmp_path)
    training.pruner.total_steps = STEPS
    rates = []
    for step in range(STEPS):
        rates.append(training.pruner.rate)
        training.run([step])
    assert training.pruner.is_final and min(rates[:20]) < 0.2 and rates[25] == 1.0
    full = thinrnn.count(Tagger()).params
    for part in (0.6, 0.3):
        small = thinrnn.load_(Tagger().double(), tmp_path / str(part))
        assert 0.9 * part * full < thinrnn.count(small).params <= part * full


def test_a_training_cut_short_ends_at_its_target(plan: thinrnn.Plan) -> None:
    training = Training(target={"params": 0.4, "steps": 1000}, plan=plan)
    training.run(range(12))
    assert not training.pruner.is_final
    training.pruner.finish_()
    assert thinrnn.count(training.model).params <= 0.4 * thinrnn.count(Tagger()).params


def test_numbers_follow_the_model(plan: thinrnn.Plan) -> None:
    training = Training(**WAYS["target"], plan=plan)
    full = thinrnn.count(training.model).params
    assert training.pruner.numbers() == {"params": full}
    training.run(range(STEPS))
    numbers = training.pruner.numbers()
    assert numbers["kept/rnn.l1"] == len(thinrnn.kept_neurons(training.model)["rnn.l1"])
    training.pruner.finish_()
    assert numbers["params"] == thinrnn.count(training.model).params < full


def test_the_gradient_of_the_penalty_is_that_of_the_loss(plan: thinrnn.Plan) -> None:
    training = Training(l0=1e-3, plan=plan)
    training.run(range(1))
    own = [gate.log_alpha for gate in thinrnn.gates(training.model).values()]
    penalty = training.pruner.penalty()
    assert isinstance(penalty, Tensor)
    expected = torch.autograd.grad(penalty, own)
    training.pruner.add_penalty_()
    training.pruner.add_penalty_()
    assert all(torch.equal(p.grad, 2 * g) for p, g in zip(own, expected, strict=True))  # type: ignore[arg-type]


def test_an_optimizer_made_after_resuming_gets_no_gates(plan: thinrnn.Plan) -> None:
    training = Training(**WAYS["target"], plan=plan)
    training.run(range(15))
    model = Tagger().double()
    pruner = thinrnn.Pruner(model, **WAYS["target"], plan=plan)
    model.load_state_dict(training.model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters())
    pruner.use_optimizer_(optimizer)
    optimizer.load_state_dict(training.optimizer.state_dict())  # as many parameters as before
    assert all(gate.log_alpha.requires_grad for gate in thinrnn.gates(model).values())


def test_a_copy_of_the_model_has_no_pruner(plan: thinrnn.Plan) -> None:
    training = Training(**WAYS["target"], plan=plan)
    training.run(range(5))
    twin = copy.deepcopy(training.model)
    assert not any("pruner" in name for name in twin.state_dict())
    assert any("pruner" in name for name in training.model.state_dict())


def test_what_cannot_work_is_refused(plan: thinrnn.Plan) -> None:
    with pytest.raises(TargetError, match="one of target"):
        thinrnn.Pruner(Tagger())
    with pytest.raises(TargetError, match="one of target"):
        thinrnn.Pruner(Tagger(), target={"params": 0.1}, l0=1e-3)
    with pytest.raises(TargetError, match="has no 'parms': it takes params, macs"):
        thinrnn.Pruner(Tagger(), target={"parms": 0.1})
    with pytest.raises(GateError, match="gates already"):
        thinrnn.Pruner(thinrnn.attach_(Tagger(), plan), l0=1e-3)
    with pytest.raises(PlanError, match="Tagger was not called"):
        thinrnn.Pruner(Tagger(), l0=1e-3).step()
