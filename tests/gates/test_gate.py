"""Gates: the paper's distribution, and how they sit on a model."""

import copy
import io
import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle import network
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import thinrnn
from thinrnn._gates.attach import attached
from thinrnn._gates.estimators import Fixed, HardConcrete
from thinrnn.errors import GateError, PlanError

EDGE = math.log(0.1 / 1.1)  # -2.398


class Net(nn.Module):
    def __init__(self, times: int = 1) -> None:
        super().__init__()
        self.rnn = nn.LSTM(3, 4)
        self.head = nn.Linear(4, 2)
        self.times = times
        self.is_broken = False

    def forward(self, x: Tensor) -> Tensor:
        results = [self.head(self.rnn(x)[0]) for _ in range(self.times)]
        if self.is_broken:
            raise ArithmeticError("broken")
        return torch.stack(results)


def gated(times: int = 1, **options: Any) -> Net:
    torch.manual_seed(0)
    model = Net(times)
    plan = thinrnn.find_groups(model, example())
    thinrnn.attach_(model, plan, **options)
    return model


def example() -> Tensor:
    return torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0))


def test_constants_of_the_paper() -> None:
    start = torch.tensor(1.0, dtype=torch.float64)
    gate = HardConcrete()
    assert gate.open_probability(start).item() == pytest.approx(0.931, abs=5e-4)
    assert gate.value(start).item() == pytest.approx(0.777, abs=5e-4)
    assert pytest.approx(-2.398, abs=5e-4) == EDGE


@given(st.floats(-20, 20))
def test_a_gate_is_closed_in_eval_up_to_the_edge_and_no_further(log_alpha: float) -> None:
    value = HardConcrete().value(torch.tensor(log_alpha, dtype=torch.float64)).item()
    if abs(log_alpha - EDGE) > 1e-9:
        assert (value == 0) == (log_alpha < EDGE)
    assert value == pytest.approx(min(max(1.2 / (1 + math.exp(-log_alpha)) - 0.1, 0), 1))


@pytest.mark.parametrize("log_alpha", [-3.0, -1.0, 0.0, 1.0, 2.5])
def test_samples_have_the_distribution_of_the_equations(log_alpha: float) -> None:
    many = 400_000
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(many, generator=generator, dtype=torch.float64)
    gate = HardConcrete()
    z = gate.sample(torch.full((many,), log_alpha, dtype=torch.float64), uniform)
    p_open = gate.open_probability(torch.tensor(log_alpha)).item()
    p_one = 1 / (1 + math.exp(-(log_alpha - 2 / 3 * math.log(11))))
    noise = 4 * 0.5 / math.sqrt(many)
    assert (z != 0).double().mean().item() == pytest.approx(p_open, abs=noise)
    assert (z == 1).double().mean().item() == pytest.approx(p_one, abs=noise)
    assert z.min() == 0
    assert z.max() == 1


def test_gradients_are_those_of_the_equations() -> None:
    log_alpha = torch.linspace(-4, 4, 9, dtype=torch.float64, requires_grad=True)
    uniform = torch.linspace(0.1, 0.9, 9, dtype=torch.float64)
    gate = HardConcrete()
    assert torch.autograd.gradcheck(gate.open_probability, (log_alpha,))
    assert torch.autograd.gradcheck(lambda a: gate.sample(a, uniform), (log_alpha,))
    p = gate.open_probability(log_alpha)
    torch.testing.assert_close(torch.autograd.grad(p.sum(), log_alpha)[0], p * (1 - p))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_values_give_numbers(dtype: torch.dtype) -> None:
    log_alpha = torch.tensor([-torch.inf, -1e4, 1e4, torch.inf], dtype=dtype, requires_grad=True)
    gate = HardConcrete()
    for u in (0.0, 1e-30, 0.5, 1 - 1e-7, 1.0):
        z = gate.sample(log_alpha, torch.full((4,), u, dtype=dtype))
        assert z.tolist() == [0, 0, 1, 1]
        assert torch.autograd.grad(z.sum(), log_alpha)[0].tolist() == [0] * 4
    assert gate.value(log_alpha).tolist() == [0, 0, 1, 1]
    p = gate.open_probability(log_alpha)
    assert p.tolist() == [0, 0, 1, 1]
    assert torch.autograd.grad(p.sum(), log_alpha)[0].tolist() == [0] * 4


def test_gates_start_at_the_paper_s_distribution() -> None:
    torch.manual_seed(0)
    start = HardConcrete().start(100_000)
    assert start.mean().item() == pytest.approx(1.0, abs=2e-3)
    assert start.std().item() == pytest.approx(0.1, abs=2e-3)


def test_gates_are_drawn_and_can_be_given() -> None:
    model = gated()
    gate = thinrnn.gates(model)["rnn.l0"]
    assert 0 < gate.log_alpha.std() < 1
    gate.log_alpha = 2.5
    assert gate.log_alpha.tolist() == [2.5] * 4
    parameter = gate.log_alpha
    gate.log_alpha = torch.tensor([1.0, -3, 9, 0])
    assert gate.log_alpha is parameter
    assert gate.keep.tolist() == [True, False, True, True]
    torch.testing.assert_close(gate.value, torch.tensor([0.777, 0, 1, 0.5]), atol=5e-4, rtol=0)
    assert gate.open_probability[0].item() == pytest.approx(0.931, abs=5e-4)
    assert repr(gate) == "Gate('rnn.l0', 3 of 4 open)"
    with pytest.raises(RuntimeError):
        gate.log_alpha = torch.zeros(3)


@dataclass
class Counting:
    """Hard concrete gates that write down how many numbers were drawn at each call."""

    drawn: list[int] = field(default_factory=list)
    inner: HardConcrete = field(default_factory=HardConcrete)

    def sample(self, log_alpha: Tensor, uniform: Tensor) -> Tensor:
        self.drawn.append(log_alpha.numel())
        return self.inner.sample(log_alpha, uniform)

    def __getattr__(self, name: str) -> Any:
        return getattr(HardConcrete(), name)


def test_one_sample_per_gate_and_call_of_the_model() -> None:
    counting = Counting()
    model = gated(times=3, gate=counting).train()
    x = example()
    first = model(x)
    assert sum(counting.drawn) == 3 + 4
    assert torch.equal(first[0], first[1])
    assert torch.equal(first[0], first[2])
    second = model(x)
    assert sum(counting.drawn) == 2 * (3 + 4)
    assert not torch.equal(first[0], second[0])


def test_eval_draws_nothing_and_repeats() -> None:
    counting = Counting()
    model = gated(gate=counting).eval()
    state = torch.get_rng_state()
    assert torch.equal(model(example()), model(example()))
    assert counting.drawn == []
    assert torch.equal(torch.get_rng_state(), state)


def test_training_repeats_from_a_seed() -> None:
    model = gated().train()
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        results.append(model(example()))
    assert torch.equal(*results)


def test_state_dict_goes_to_another_model() -> None:
    model, other = gated(), gated()
    for gate in thinrnn.gates(other).values():
        gate.log_alpha = torch.randn(gate.size)
    weights = [name for name in model.state_dict() if not name.startswith("thinrnn:")]
    assert weights == list(Net().state_dict())
    file = io.BytesIO()
    torch.save(other.state_dict(), file)
    file.seek(0)
    model.load_state_dict(torch.load(file, weights_only=True))
    for name, gate in thinrnn.gates(model).items():
        assert torch.equal(gate.log_alpha, thinrnn.gates(other)[name].log_alpha)
    assert torch.equal(model.eval()(example()), other.eval()(example()))


def test_weights_of_another_plan_are_refused() -> None:
    model = gated()
    other = Net()
    plan = thinrnn.find_groups(other, example())
    thinrnn.attach_(other, plan.only("rnn.l0"))
    with pytest.raises(PlanError, match=r"another plan.*\bx\b"):
        model.load_state_dict(other.state_dict())
    with pytest.raises(PlanError, match=r"another plan.*\bx\b"):
        other.load_state_dict(model.state_dict())
    model.load_state_dict(Net().state_dict(), strict=False)  # a dense checkpoint has no gates


def test_a_copy_has_gates_of_its_own() -> None:
    model = gated()
    model.train()(example()).sum().backward()
    twin = copy.deepcopy(model)
    before = model.eval()(example())
    thinrnn.gates(twin)["rnn.l0"].log_alpha = -9.0
    assert torch.equal(model(example()), before)
    assert not torch.allclose(twin.eval()(example()), before)
    assert thinrnn.gates(twin)["rnn.l0"].keep.sum() == 0
    assert thinrnn.gates(model)["rnn.l0"].keep.all()
    twin.train()(example()).sum().backward()
    thinrnn.detach_(twin)
    assert list(thinrnn.gates(model)) == ["x", "rnn.l0"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("attached_first", [True, False])
def test_models_in_16_bits(dtype: torch.dtype, attached_first: bool) -> None:
    torch.manual_seed(0)
    model = Net()
    plan = thinrnn.find_groups(model, example())
    if attached_first:
        thinrnn.attach_(model, plan).to(dtype)
    else:
        thinrnn.attach_(model.to(dtype), plan)
    gates = thinrnn.gates(model)
    gates["rnn.l0"].log_alpha = torch.tensor([-9.0, 0.3, 2.0, 1e4])
    gates["x"].log_alpha = torch.tensor([1.0, -1e4, 0.1])
    x = example().to(dtype)
    result = model.train()(x)
    assert result.dtype == dtype
    result.float().sum().backward()
    for gate in gates.values():
        assert gate.log_alpha.grad.isfinite().all()
        assert gate.value.dtype == torch.float32
    small = thinrnn.compact(model.eval())
    assert {p.dtype for p in small.parameters()} == {dtype}
    torch.testing.assert_close(small(x), model(x), atol=2e-2, rtol=2e-2)
    assert thinrnn.verify(model, small, x) < 2e-2


def test_gates_follow_the_model_to_float64() -> None:
    model = gated().double()
    gate = thinrnn.gates(model)["rnn.l0"]
    assert gate.value.dtype == torch.float64
    assert gate.origin.dtype == torch.long
    assert model.eval()(example().double()).dtype == torch.float64


def test_gates_that_are_not_numbers_are_refused() -> None:
    model = gated()
    gate = thinrnn.gates(model)["rnn.l0"]
    gate.log_alpha = torch.tensor([1.0, torch.nan, 1, 1])
    with pytest.raises(GateError, match=r"'rnn\.l0'.*NaN.*checkpoint"):
        thinrnn.compact(model)
    with pytest.raises(GateError, match=r"'rnn\.l0'.*NaN.*checkpoint"):
        thinrnn.shrink_(model)
    with pytest.raises(GateError, match=r"'rnn\.l0'.*NaN.*checkpoint"):
        thinrnn.Target(model, params=0.5, steps=1).step()


def test_attaching_twice_and_detaching() -> None:
    model = gated()
    plan = attached(model).plan
    with pytest.raises(GateError, match="detach_"):
        thinrnn.attach_(model, plan)
    weights = {name: p.clone() for name, p in model.named_parameters() if "thinrnn" not in name}
    thinrnn.detach_(model)
    assert {name: p for name, p in model.named_parameters()}.keys() == weights.keys()
    assert all(torch.equal(p, weights[name]) for name, p in model.named_parameters())
    expected = network(model.rnn, example())[0]
    torch.testing.assert_close(model.rnn(example())[0], expected)
    for call in (thinrnn.detach_, thinrnn.gates, thinrnn.compact):
        with pytest.raises(GateError, match=r"no gates: call attach_"):
            call(model)
    thinrnn.attach_(model, plan)


def test_a_plan_without_groups_is_refused() -> None:
    with pytest.raises(PlanError, match="no group"):
        thinrnn.attach_(Net(), thinrnn.Plan(()))


class StraightThrough:
    """Bernoulli gates, the gradient of the probability standing in for that of the sample."""

    def start(self, size: int) -> Tensor:
        return torch.ones(size)

    def sample(self, log_alpha: Tensor, uniform: Tensor) -> Tensor:
        p = torch.sigmoid(log_alpha)
        return (uniform < p).to(p) + p - p.detach()

    def value(self, log_alpha: Tensor) -> Tensor:
        return (log_alpha > 0).to(log_alpha.dtype)

    def open_probability(self, log_alpha: Tensor) -> Tensor:
        return torch.sigmoid(log_alpha)

    def placed(self, is_open: Tensor, log_alpha: Tensor) -> Tensor:
        return torch.where(is_open, log_alpha.clamp(min=0.5), log_alpha.clamp(max=-0.5))


def test_an_estimator_of_one_s_own() -> None:
    model = gated(gate=StraightThrough())
    penalty = thinrnn.L0(model, weight=1e-2)
    target = thinrnn.Target(model, params=0.5, steps=5)
    optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-2))
    start = penalty().item()
    for _ in range(12):
        loss = model(example()).square().mean() + penalty()
        optimizer.zero_grad()
        loss.backward()
        assert target.is_settled or all(
            gate.log_alpha.grad.abs().sum() > 0 for gate in thinrnn.gates(model).values()
        )
        optimizer.step()
        target.step()
    assert {round(v, 6) for v in attached(model).last["rnn.l0"].tolist()} <= {0.0, 1.0}
    assert penalty().item() < start
    model.eval()
    full = thinrnn.count(Net()).params
    small = thinrnn.compact(model)
    assert thinrnn.count(small).params <= 0.5 * full
    assert thinrnn.verify(model, small, example()) < 1e-5
    assert thinrnn.shrink_(model, optimizer) > 0
    assert thinrnn.verify(model, small, example()) < 1e-5


def test_fixed_gates_do_not_change() -> None:
    model = gated(gate=Fixed())
    gate = thinrnn.gates(model)["rnn.l0"]
    gate.log_alpha = torch.tensor([1.0, -1, 1, -1])
    assert torch.equal(model.train()(example()), model.eval()(example()))
    assert gate.keep.tolist() == [True, False, True, False]


class Saving(Net):
    """Runs its layers again in the backward pass, or is itself run again."""

    region = ""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.reentrant = reentrant

    def layers(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(self.rnn(x)[0]))

    def forward(self, x: Tensor) -> Tensor:
        if self.region == "layers":
            return checkpoint(self.layers, x, use_reentrant=self.reentrant)
        return self.layers(x)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("region", ["layers", "model"])
def test_activation_checkpointing_sees_the_same_sample(region: str, reentrant: bool) -> None:
    torch.manual_seed(0)
    model = Saving(reentrant).double()
    x = example().double().requires_grad_()
    thinrnn.attach_(model, thinrnn.find_groups(model, x.detach())).train()
    found = []
    for model.region in ("", region):
        torch.manual_seed(1)
        model.zero_grad()
        if model.region == "model":
            result = checkpoint(model, x, use_reentrant=reentrant)
        else:
            result = model(x)
        result.square().sum().backward()
        assert no_shadows(model)
        found.append({name: p.grad.clone() for name, p in model.named_parameters()})
    assert all(g.abs().sum() > 0 for g in found[0].values())
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, msg=lambda m, n=name: f"{n}: {m}")


def test_a_layer_called_on_its_own_is_gated_too() -> None:
    model = gated().double()
    x = example().double()
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.linspace(-4, 3, gate.size)
    model.eval()
    values = {name: gate.value.detach() for name, gate in thinrnn.gates(model).items()}
    plain = Net().double()
    plain.load_state_dict(model.state_dict(), strict=False)
    expected, _ = network(plain.rnn, x, None, {"input": values["x"], "l0": values["rnn.l0"]})
    torch.testing.assert_close(model.rnn(x)[0], expected)
    torch.testing.assert_close(model.head(expected), model(x)[0])
    model.train()
    output, _ = model.rnn(x)
    values = attached(model).last
    expected, _ = network(plain.rnn, x, None, {"input": values["x"], "l0": values["rnn.l0"]})
    torch.testing.assert_close(output, expected)


def no_shadows(model: Net) -> bool:
    own = [getattr(model.rnn, name) for name in model.rnn._flat_weights_names]
    plain = all(a is b for a, b in zip(model.rnn._flat_weights, own, strict=True))
    return plain and "weight" not in model.head.__dict__


def test_a_forward_that_raises_leaves_nothing_behind() -> None:
    model = gated().eval()
    expected = model(example())
    model.is_broken = True
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="broken"):
            model(example())
        assert no_shadows(model)
    model.is_broken = False
    assert torch.equal(model(example()), expected)
    with pytest.raises(RuntimeError):
        model(torch.randn(5, 2, 4))  # the layer itself complains about the width
    assert no_shadows(model)
    assert torch.equal(model(example()), expected)


def test_an_interrupt_by_the_user_is_forgotten_at_the_next_call() -> None:
    model = gated().eval()
    expected = model(example())

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    for module in (model.head, model.rnn):
        handle = module.register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(example())
        handle.remove()
        thinrnn.gates(model)["rnn.l0"].log_alpha = -9.0
        assert not torch.allclose(model(example()), expected)
        assert no_shadows(model)
        thinrnn.gates(model)["rnn.l0"].log_alpha = 1.0
        expected = model(example())


def test_a_hook_of_the_user_may_raise_before_ours() -> None:
    model = gated().eval()
    expected = model(example())

    def refuse(*_: Any) -> None:
        raise ValueError("not today")

    handle = model.register_forward_pre_hook(refuse, prepend=True)
    with pytest.raises(ValueError, match="not today"):
        model(example())
    handle.remove()
    assert torch.equal(model(example()), expected)
    assert no_shadows(model)


def test_a_buffer_may_read_neurons() -> None:
    class Fixed(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("matrix", torch.randn(4, 2))

        def forward(self, x: Tensor) -> Tensor:
            return self.rnn(x)[0] @ self.matrix

    torch.manual_seed(0)
    model = Fixed().eval()
    group = thinrnn.find_groups(Net(), example())["rnn.l0"]
    slices = [s for s in group.slices if s.parameter.startswith("rnn")]
    slices.append(thinrnn.Slice("matrix", 0, "read", ((0, 0, 4),)))
    thinrnn.attach_(model, thinrnn.Plan((thinrnn.Group("rnn.l0", 4, tuple(slices)),)))
    thinrnn.gates(model)["rnn.l0"].log_alpha = torch.tensor([1.0, -9, 0, 9])
    small = thinrnn.compact(model)
    assert small.matrix.shape == (3, 2)
    assert thinrnn.verify(model, small, example()) < 1e-6


def test_a_parameter_may_be_read_along_one_dimension() -> None:
    model = Net()
    groups = [
        thinrnn.Group(name, 4, (thinrnn.Slice("rnn.weight_hh_l0", dim, "read", ((0, 0, 4),)),))
        for name, dim in (("rows", 0), ("columns", 1))
    ]
    with pytest.raises(PlanError, match=r"'rnn\.weight_hh_l0' is read along two dimensions"):
        thinrnn.attach_(model, thinrnn.Plan(tuple(groups)))
    assert list(model.state_dict()) == list(Net().state_dict())


def test_param_groups() -> None:
    model = gated()
    model.rnn.bias_hh_l0.requires_grad_(False)
    weights, own = thinrnn.param_groups(model, lr=0.1, gate_lr=0.5, weight_decay=1e-2)
    assert (weights["lr"], weights["weight_decay"]) == (0.1, 1e-2)
    assert (own["lr"], own["weight_decay"]) == (0.5, 0.0)
    assert [id(p) for p in own["params"]] == [
        id(gate.log_alpha) for gate in thinrnn.gates(model).values()
    ]
    names = {id(p): name for name, p in model.named_parameters()}
    trained = [name for name in names.values() if "thinrnn" not in name and "bias_hh" not in name]
    assert [names[id(p)] for p in weights["params"]] == trained
    assert thinrnn.param_groups(model, lr=0.1)[1]["lr"] == 0.1
    torch.optim.SGD(thinrnn.param_groups(model, lr=0.1))
