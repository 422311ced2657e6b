"""Removing neurons during training changes nothing but the speed."""

import contextlib
import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from grids import A_HALF, GateSetting, Shape, gate_settings, gated_model, shapes
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import Optimizer

import thinrnn
from thinrnn.errors import GateError, PlanError, ThinRNNError

FAR = 50.0  # a gate this far closed is never sampled open


class Tagger(nn.Module):
    """An embedding, a recurrent network of two layers, a reader."""

    def __init__(self, kind: str = "LSTM", tied: bool = False, **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 6)
        self.rnn = getattr(nn, kind)(6, 6, num_layers=2, **options)
        width = (self.rnn.proj_size or 6) * (2 if self.rnn.bidirectional else 1)
        self.head = nn.Linear(width, 9, bias=not tied)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(self.embedding(x))[0])


MODELS: dict[str, Callable[[], nn.Module]] = {
    "LSTM": Tagger,
    "tied LSTM": lambda: Tagger(tied=True),
    "projected LSTM": lambda: Tagger(proj_size=5, bidirectional=True),
    "bidirectional GRU": lambda: Tagger("GRU", bidirectional=True),
    "RNN": lambda: Tagger("RNN", nonlinearity="relu"),
}

OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "SGD": lambda groups: torch.optim.SGD(groups),
    "momentum": lambda groups: torch.optim.SGD(groups, momentum=0.9),
    "Nesterov": lambda groups: torch.optim.SGD(groups, momentum=0.9, nesterov=True),
    "Adam": lambda groups: torch.optim.Adam(groups),
    "AMSGrad": lambda groups: torch.optim.Adam(groups, amsgrad=True),
    "AdamW": lambda groups: torch.optim.AdamW(groups),
    "one by one": lambda groups: torch.optim.Adam(groups, foreach=False),
    "RMSprop": lambda groups: torch.optim.RMSprop(groups, momentum=0.5, centered=True),
    "Adagrad": lambda groups: torch.optim.Adagrad(groups),
    "ASGD": lambda groups: torch.optim.ASGD(groups, t0=0, lambd=0.0),
}


@functools.cache
def plan_of(make: Callable[[], nn.Module]) -> thinrnn.Plan:
    return thinrnn.find_groups(make(), torch.randint(9, (5, 3)))


class Training:
    """A model in training, of which `close` and `shrink` remove what they are told."""

    def __init__(self, make: Callable[[], nn.Module], optimizer: Callable[[Any], Optimizer]):
        torch.manual_seed(0)
        self.model = make().double()
        thinrnn.attach_(self.model, plan_of(make))
        for gate in thinrnn.gates(self.model).values():
            gate.log_alpha = torch.linspace(0.5, 2.5, gate.size)
        groups = thinrnn.param_groups(self.model, lr=0.05, gate_lr=0.02, weight_decay=1e-3)
        self.optimizers = [optimizer(groups)]
        self.penalties: list[Callable[[], Tensor]] = []
        self.target: thinrnn.Target | None = None
        self.losses: list[float] = []
        self.alive: list[Tensor] = []  # losses of past steps that are still referenced

    def steps(self, count: int) -> None:
        self.model.train()
        for _ in range(count):
            torch.manual_seed(len(self.losses))
            x, y = torch.randint(9, (2, 5, 3))
            loss = nn.functional.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
            loss = loss + sum(penalty() for penalty in self.penalties)
            self.losses.append(loss.item())
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.25)
            for optimizer in self.optimizers:
                optimizer.step()
            if self.target is not None:
                self.target.step()
            self.alive.append(loss)

    def close(self, *neurons: int) -> None:
        """Close the given original neurons of every group for good, one at least staying open."""
        for gate in thinrnn.gates(self.model).values():
            closed = torch.isin(gate.origin, torch.tensor(neurons))
            assert not closed.all()
            gate.log_alpha = torch.where(closed, -FAR, gate.log_alpha)

    def shrink(self) -> int:
        torch.manual_seed(99)
        x = torch.randint(9, (5, 3))
        self.alive.append(self.model(x).sum())  # a graph without a backward pass
        return thinrnn.shrink_(self.model, self.optimizers)


def assert_same_losses(a: Training, b: Training) -> None:
    torch.testing.assert_close(torch.tensor(a.losses), torch.tensor(b.losses), rtol=0, atol=1e-9)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_losses_go_on_as_without_shrinking(model: str, optimizer: str) -> None:
    runs = [Training(MODELS[model], OPTIMIZERS[optimizer]) for _ in range(2)]
    for run in runs:
        run.penalties.append(thinrnn.L0(run.model, weight=1e-3))
        run.steps(3)
        run.close(1, 4)
    whole, shrunk = runs
    before = {id(p) for p in shrunk.model.parameters()}
    assert shrunk.shrink() > 0
    assert {id(p) for p in shrunk.model.parameters()} == before
    for run in runs:
        run.steps(20)
    assert_same_losses(whole, shrunk)
    assert sum(p.numel() for p in shrunk.model.parameters()) < sum(
        p.numel() for p in whole.model.parameters()
    )
    if optimizer == "ASGD":
        torch.testing.assert_close(averaged_output(shrunk), averaged_output(whole))


def averaged_output(run: Training) -> Tensor:
    """The outputs of the model in eval with the averages that ASGD keeps."""
    for parameter in run.model.parameters():
        average = run.optimizers[0].state[parameter]["ax"]
        assert average.shape == parameter.shape
        assert not torch.equal(average, parameter)
        parameter.data.copy_(average)
    return run.model.eval()(torch.arange(9).view(3, 3))


@pytest.mark.parametrize("optimizer", ["momentum", "Adam", "ASGD"])
def test_several_times_in_a_row(optimizer: str) -> None:
    whole, shrunk = (Training(MODELS["LSTM"], OPTIMIZERS[optimizer]) for _ in range(2))
    for neuron in (0, 5, 2):
        for run in (whole, shrunk):
            run.steps(3)
            run.close(neuron)
        assert shrunk.shrink() == len(thinrnn.gates(shrunk.model))
        assert shrunk.shrink() == 0
    for run in (whole, shrunk):
        run.steps(20)
    assert_same_losses(whole, shrunk)
    assert thinrnn.kept_neurons(shrunk.model) == {
        name: [1, 3, 4] for name in thinrnn.gates(shrunk.model)
    }


def test_layers_of_unequal_sizes_become_a_stack() -> None:
    whole, shrunk = (Training(MODELS["LSTM"], OPTIMIZERS["Adam"]) for _ in range(2))
    for run in (whole, shrunk):
        run.steps(3)
        gate = thinrnn.gates(run.model)["rnn.l0"]
        gate.log_alpha = torch.where(torch.arange(6) < 4, -FAR, gate.log_alpha)
    shrunk.shrink()
    assert isinstance(shrunk.model.rnn, thinrnn.RNNStack)
    assert shrunk.model.rnn.hidden_size == (2, 6)
    for run in (whole, shrunk):
        run.steps(5)
        run.close(0, 1, 2, 3)
    shrunk.shrink()
    for run in (whole, shrunk):
        run.steps(20)
    assert_same_losses(whole, shrunk)
    assert type(shrunk.model.rnn) is nn.LSTM  # sizes are equal again
    small = thinrnn.compact(shrunk.model)
    assert type(small.rnn) is nn.LSTM
    assert thinrnn.verify(whole.model, small, torch.randint(9, (5, 3))) < 1e-9


def test_with_a_target_between_two_of_its_looks() -> None:
    whole, shrunk = (Training(MODELS["LSTM"], OPTIMIZERS["Adam"]) for _ in range(2))
    for run in (whole, shrunk):
        run.target = thinrnn.Target(run.model, params=0.5, steps=10_000)
        run.steps(3)
        run.close(1, 4)
    shrunk.shrink()
    for run in (whole, shrunk):
        run.steps(20)
    assert_same_losses(whole, shrunk)


def test_several_optimizers() -> None:
    runs = [Training(MODELS["bidirectional GRU"], OPTIMIZERS["SGD"]) for _ in range(2)]
    for run in runs:
        weights, gates = thinrnn.param_groups(run.model, lr=0.05, gate_lr=0.02)
        run.optimizers = [
            torch.optim.SGD([weights], momentum=0.9),
            torch.optim.Adam([gates]),
        ]
        run.steps(3)
        run.close(2)
    runs[1].shrink()
    for run in runs:
        run.steps(20)
    assert_same_losses(*runs)


def test_without_an_optimizer() -> None:
    run = Training(MODELS["LSTM"], OPTIMIZERS["SGD"])
    run.close(0)
    assert thinrnn.shrink_(run.model) == 3
    run.steps(3)


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda groups: torch.optim.Adafactor(groups), "row_var"),
        (lambda groups: torch.optim.LBFGS(groups[0]["params"] + groups[1]["params"]), "d"),
    ],
)
def test_state_that_cannot_be_cut_is_refused_and_nothing_changes(make: Any, key: str) -> None:
    run = Training(MODELS["LSTM"], make)
    (optimizer,) = run.optimizers
    x = torch.randint(9, (5, 3))

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = run.model(x).square().mean()
        value.backward()
        return value

    optimizer.step(loss)
    run.close(1)
    before = copy.deepcopy((run.model.state_dict(), optimizer.state_dict()))
    with pytest.raises(ThinRNNError, match=f"{type(optimizer).__name__} keeps '{key}'.*new opt"):
        thinrnn.shrink_(run.model, optimizer)
    after = run.model.state_dict(), optimizer.state_dict()
    assert [t.shape for t in tensors_of(after)] == [t.shape for t in tensors_of(before)]
    assert all(map(torch.equal, tensors_of(after), tensors_of(before)))


def tensors_of(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [t for part in tree for t in tensors_of(part)] if isinstance(tree, Sequence) else []


@pytest.mark.parametrize("cut_first", [True, False])
@pytest.mark.parametrize("model", MODELS)
def test_a_checkpoint_of_a_shrunk_model_is_resumed(model: str, cut_first: bool) -> None:
    run = Training(MODELS[model], OPTIMIZERS["Adam"])
    run.steps(3)
    run.close(0, 3)
    gate = thinrnn.gates(run.model)["rnn.l0"]
    gate.log_alpha = torch.where(gate.origin == 1, -FAR, gate.log_alpha)
    run.shrink()
    run.steps(2)
    saved = copy.deepcopy((run.model.state_dict(), run.optimizers[0].state_dict()))
    kept = thinrnn.kept_neurons(run.model)

    resumed = Training(MODELS[model], OPTIMIZERS["Adam"])
    with pytest.raises(PlanError, match="cut_"):
        resumed.model.load_state_dict(saved[0])
    if cut_first:
        thinrnn.cut_(resumed.model, kept)
        groups = thinrnn.param_groups(resumed.model, lr=0.05, gate_lr=0.02, weight_decay=1e-3)
        resumed.optimizers = [OPTIMIZERS["Adam"](groups)]
    else:
        resumed.steps(1)
        thinrnn.cut_(resumed.model, kept, resumed.optimizers[0])
    resumed.model.load_state_dict(saved[0])
    resumed.optimizers[0].load_state_dict(saved[1])
    assert thinrnn.kept_neurons(resumed.model) == kept
    resumed.losses = list(run.losses)
    for each in (run, resumed):
        each.steps(5)
    assert resumed.losses == run.losses


def test_cut_refuses_neurons_that_are_not_there() -> None:
    model = Training(MODELS["LSTM"], OPTIMIZERS["SGD"]).model
    with pytest.raises(PlanError, match=r"'rnn.l0'.*another plan"):
        thinrnn.cut_(model, {"rnn.l0": [0, 6]})
    with pytest.raises(PlanError, match=r"'rnn.l0'.*another plan"):
        thinrnn.cut_(model, {"rnn.l0": []})
    with pytest.raises(PlanError, match="no group"):
        thinrnn.cut_(model, {"rnn.l7": [0]})
    thinrnn.cut_(model, {"rnn.l0": [5, 0]})
    assert thinrnn.kept_neurons(model)["rnn.l0"] == [0, 5]
    with pytest.raises(PlanError, match=r"'rnn.l0'.*another plan"):
        thinrnn.cut_(model, {"rnn.l0": [0, 1]})


def test_shrinking_needs_gates_that_are_numbers() -> None:
    with pytest.raises(GateError, match="no gates"):
        thinrnn.shrink_(Tagger())
    run = Training(MODELS["LSTM"], OPTIMIZERS["SGD"])
    with torch.no_grad():
        thinrnn.gates(run.model)["rnn.l1"].log_alpha[2] = torch.nan
    with pytest.raises(GateError, match=r"'rnn.l1'.*NaN"):
        run.shrink()


def test_an_rnn_that_is_the_model_itself_is_left_as_it_was() -> None:
    rnn = nn.LSTM(3, 4, num_layers=2)
    x = torch.randn(5, 2, 3)
    thinrnn.attach_(rnn, thinrnn.find_groups(rnn, x))
    thinrnn.gates(rnn)["l0"].log_alpha = torch.tensor([2.0, -FAR, 2.0, 2.0])
    before = rnn.eval()(x)[0]
    with pytest.raises(PlanError, match="inside a module of your own"):
        thinrnn.shrink_(rnn)
    torch.testing.assert_close(rnn(x)[0], before)
    thinrnn.gates(rnn)["l0"].log_alpha = 2.0
    thinrnn.gates(rnn)["input"].log_alpha = torch.tensor([2.0, -FAR, 2.0])
    assert thinrnn.shrink_(rnn) == 1
    assert rnn.input_size == 2


def test_one_neuron_stays_where_all_are_closed() -> None:
    run = Training(MODELS["LSTM"], OPTIMIZERS["Adam"])
    run.steps(1)
    gate = thinrnn.gates(run.model)["rnn.l1"]
    gate.log_alpha = -FAR + torch.tensor([0.0, 0, 3, 0, 0, 0])
    run.shrink()
    assert thinrnn.kept_neurons(run.model)["rnn.l1"] == [2]
    run.steps(3)


def test_a_layer_that_reads_a_part_of_the_inputs_keeps_one() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.LSTM(3, 4), nn.GRU(4, 5)
            self.head = nn.Linear(9, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.cat([self.a(x[..., :3])[0], self.b(x[..., 3:])[0]], -1))

    torch.manual_seed(0)
    model, x = Two().double().eval(), torch.randn(5, 2, 7).double()
    thinrnn.attach_(model, thinrnn.find_groups(model, x))
    thinrnn.gates(model)["x"].log_alpha = torch.tensor([-9.0, -8, -9, 2, 2, 2, -9])
    expected = model(x)
    with pytest.warns(UserWarning, match="'a.weight_ih_l0'.* the best is kept"):
        small = thinrnn.compact(model)
    assert thinrnn.kept_inputs(small) == {"x": [1, 3, 4, 5]}
    assert thinrnn.shrink_(model) == 3
    torch.testing.assert_close(model(x), expected)
    torch.testing.assert_close(small(x), expected)


@A_HALF
@given(shapes(), gate_settings(), gate_settings(), st.sampled_from(["readers", "both"]))
def test_outputs_stay_over_the_whole_grid(
    shape: Shape, first: GateSetting, second: GateSetting, placement: Any
) -> None:
    """In eval, in training with the same noise, for compact, and again after more gates close."""
    model, plan = gated_model(shape)
    thinrnn.attach_(thinrnn.detach_(model), plan, placement=placement)
    arguments = shape.arguments(1)
    for setting in (first, second):
        never_open(model, setting)
        expected = outputs(model, arguments)
        empty = [name for name, gate in thinrnn.gates(model).items() if not gate.keep.any()]
        kept = {n: g.origin[g.keep].tolist() for n, g in thinrnn.gates(model).items()}
        thinrnn.shrink_(model)
        torch.testing.assert_close(outputs(model, arguments), expected, rtol=1e-10, atol=1e-10)
        for name, neurons in thinrnn.kept_neurons(model).items():
            assert len(neurons) == 1 if name in empty else neurons == kept[name]


def never_open(model: nn.Module, setting: GateSetting) -> None:
    setting.apply(model)
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.where(gate.keep, gate.log_alpha, gate.log_alpha - 1e4)


def outputs(model: nn.Module, arguments: Any) -> list[Tensor]:
    """The results in eval, in training, and of the small model."""
    results = [model.eval()(*arguments)]
    torch.manual_seed(3)
    results.append(model.train()(*arguments))
    with pytest.warns(UserWarning) if any_empty(model) else contextlib.nullcontext():
        results.append(thinrnn.compact(model.eval())(*arguments))
    return [r[0] if isinstance(r, tuple) else r for r in results]


def any_empty(model: nn.Module) -> bool:
    return not all(gate.keep.any() for gate in thinrnn.gates(model).values())


def test_layers_that_have_one_size_again_are_as_if_cut_at_once() -> None:
    torch.manual_seed(0)
    fresh, by_steps = (whole_tagger() for _ in range(2))
    close(by_steps, {"rnn.l0": (0,)})
    thinrnn.shrink_(by_steps)
    assert isinstance(by_steps.rnn, thinrnn.RNNStack)
    close(by_steps, {"rnn.l1": (1,)})
    thinrnn.shrink_(by_steps)
    thinrnn.cut_(fresh, thinrnn.kept_neurons(by_steps))
    fresh.load_state_dict(by_steps.state_dict())
    x = torch.arange(8).view(4, 2)
    fresh.eval(), by_steps.eval()
    torch.testing.assert_close(fresh(x), by_steps(x), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:Target closes its first gates")
@pytest.mark.parametrize("placement", ["readers", "both"])
def test_gates_that_a_target_has_settled_are_folded_into_the_weights(placement: Any) -> None:
    torch.manual_seed(0)
    model = whole_tagger(placement=placement).double()
    optimizer = torch.optim.ASGD(thinrnn.param_groups(model, lr=0.1, gate_lr=0.1), t0=0, lambd=0)
    target = thinrnn.Target(model, params=0.5, steps=3)
    x = torch.arange(8).view(4, 2)
    for _ in range(4):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        target.step()
    before = model(x)
    torch.testing.assert_close(model(x), before, rtol=0, atol=0)  # in training: no longer random
    weight = model.head.weight
    ratio = (optimizer.state[weight]["ax"] / weight).detach()
    assert thinrnn.shrink_(model, optimizer)
    torch.testing.assert_close(model(x), before, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(thinrnn.detach_(copy.deepcopy(model))(x), before)
    left = thinrnn.kept_neurons(model)["rnn.l1"]
    torch.testing.assert_close(optimizer.state[weight]["ax"] / weight, ratio[:, left])
    again = thinrnn.Target(model, params=0.5, steps=3)  # of what is left
    assert torch.equal(model(x), model(x))
    again.step()  # from here on gates learn again
    assert all((g.open_probability > 0).all() for g in thinrnn.gates(model).values())
    assert not torch.equal(model(x), model(x))
    model(x).square().mean().backward()
    assert all(gate.log_alpha.grad is not None for gate in thinrnn.gates(model).values())


def whole_tagger(**options: Any) -> nn.Module:
    model = Tagger()
    plan = thinrnn.find_groups(model, torch.zeros(4, 2, dtype=torch.long))
    return thinrnn.attach_(model, plan, **options)


def close(model: nn.Module, neurons: dict[str, Sequence[int]]) -> None:
    for name, which in neurons.items():
        with torch.no_grad():
            thinrnn.gates(model)[name].log_alpha[list(which)] = -FAR
