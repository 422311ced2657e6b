"""Recurrent highway networks: the equations, the calls, and the promise of the library on them."""

import itertools
import tempfile
import warnings
from dataclasses import dataclass
from typing import Any

import oracle as reference
import pytest
import torch
from grids import A_HALF, GateSetting, gate_settings, read_gates
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import thinrnn
from thinrnn import RHN
from thinrnn._gates.attach import attached
from thinrnn.errors import StateError, ThinRNNError
from thinrnn.plan import Plan

VOCABULARY = 7
SEVERAL = st.lists(gate_settings(), min_size=3, max_size=3)


@dataclass(frozen=True)
class Shape:
    inputs: int
    hidden: int
    depth: int
    layers: int
    batch_first: bool
    batch: int | None  # None: unbatched
    steps: int
    front: str  # "embedding", "tied", "nothing": raw input
    state: str  # "none", "zeros" made by the model's code, "optional", "given"

    def model(self, seed: int = 0) -> "Net":
        torch.manual_seed(seed)
        model = Net(self).double()
        for name, parameter in model.named_parameters():
            if "bias" in name:  # other than at the start, so that a lost bias is seen
                nn.init.normal_(parameter)
        return model

    def arguments(self, seed: int = 0, steps: int | None = None) -> tuple[Tensor, Any]:
        generator = torch.Generator().manual_seed(seed)
        rows = (steps or self.steps,) if self.batch is None else (steps or self.steps, self.batch)
        rows = rows[::-1] if self.batch_first else rows
        state = None
        if self.state == "given":
            state = [torch.randn(s, generator=generator).double() for s in self.state_shapes]
        if self.front == "nothing":
            return torch.randn(*rows, self.inputs, generator=generator).double(), state
        return torch.randint(VOCABULARY, rows, generator=generator), state

    @property
    def state_shapes(self) -> list[tuple[int, ...]]:
        batch = () if self.batch is None else (self.batch,)
        return [(1, *batch, self.hidden)] * self.layers


class Net(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        inputs = shape.hidden if shape.front == "tied" else shape.inputs
        self.front = nn.Identity() if shape.front == "nothing" else nn.Embedding(VOCABULARY, inputs)
        sizes = [inputs, *[shape.hidden] * shape.layers]
        self.layers = nn.ModuleList(
            RHN(m, n, depth=shape.depth, batch_first=shape.batch_first)
            for m, n in itertools.pairwise(sizes)
        )
        self.head = nn.Linear(shape.hidden, VOCABULARY)
        if shape.front == "tied":
            self.head.weight = self.front.weight

    def forward(self, x: Tensor, state: Any = None) -> Any:
        x = self.front(x)
        states = [None] * len(self.layers) if state is None else list(state)
        if self.shape.state == "zeros":
            states = [torch.zeros(s, dtype=torch.float64) for s in self.shape.state_shapes]
        for k, layer in enumerate(self.layers):
            x, states[k] = layer(x, states[k])
        return (self.head(x), states) if self.shape.state in ("optional", "given") else self.head(x)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    return Shape(
        inputs=draw(st.integers(1, 5)),
        hidden=draw(st.integers(2, 6)),
        depth=draw(st.integers(1, 4)),
        layers=draw(st.integers(1, 2)),
        batch_first=draw(st.booleans()),
        batch=draw(st.sampled_from([None, 1, 3])),
        steps=draw(st.integers(2, 4)),
        front=draw(st.sampled_from(["embedding", "tied", "nothing"])),
        state=draw(st.sampled_from(["none", "zeros", "optional", "given"])),
    )


def gated_model(shape: Shape) -> tuple[Net, Plan]:
    model = shape.model()
    plan = thinrnn.find_groups(model, shape.arguments())
    thinrnn.attach_(model, plan)
    return model.eval(), plan


def oracle(model: Net, plan: Plan, values: dict[str, Tensor], x: Tensor, state: Any) -> Tensor:
    """The output of the gated model from the slow reference; `model` has no gates."""

    def gates(parameter: str) -> Tensor:
        return read_gates(plan, values, parameter, model.get_parameter(parameter).shape[1])

    shape = model.shape
    x = model.front(x)
    if shape.front == "tied":  # one tensor, so gates of the reader are on the looked up rows too
        x = x * gates("head.weight")
    x = x.unsqueeze(1) if shape.batch is None else x.transpose(0, 1) if shape.batch_first else x
    for k, layer in enumerate(model.layers):
        name = f"layers.{k}"
        s = x.new_zeros(x.size(1), shape.hidden)
        if state is not None:
            s = state[k].view(-1, shape.hidden)
        U = [getattr(layer, f"weight_hh_d{d}") for d in range(shape.depth)]
        b = [getattr(layer, f"bias_d{d}") for d in range(shape.depth)]
        of_state = [gates(f"{name}.weight_hh_d{d}") for d in range(shape.depth)]
        assert all(torch.equal(g, of_state[0]) for g in of_state)
        z = gates(f"{name}.weight_ih")
        x, _ = reference.rhn(x, s, layer.weight_ih, U, b, z=z, g=of_state[0])
    result = model.head(x * gates("head.weight"))
    if shape.batch is None:
        return result.squeeze(1)
    return result.transpose(0, 1) if shape.batch_first else result


def output_of(result: Any) -> Tensor:
    return result[0] if isinstance(result, tuple) else result


def assert_close(result: Any, expected: Any, tolerance: float = 1e-10) -> None:
    a, b = output_of(result), output_of(expected)
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def compacted(model: nn.Module) -> nn.Module:
    with warnings.catch_warnings():  # of groups that are closed as a whole
        warnings.simplefilter("ignore")
        return thinrnn.compact(model)


@given(shapes(), SEVERAL)
def test_compact_equals_gated_and_the_slow_reference(
    shape: Shape, settings: list[GateSetting]
) -> None:
    model, plan = gated_model(shape)
    names = [name for group in plan for name in group.name.split("+")]
    front = "x" if shape.front == "nothing" else "front"
    assert set(names) == {front, *(f"layers.{k}.l0" for k in range(shape.layers))}, str(plan)
    plain = shape.model()
    for seed, setting in enumerate(settings):
        setting.apply(model)
        x, state = shape.arguments(seed, shape.steps + 1)
        expected = model(x, state)
        values = {name: gate.value for name, gate in thinrnn.gates(model).items()}
        assert_close(expected, oracle(plain, plan, values, x, state), 1e-11)
        small = compacted(model)
        result = small(x, state)
        assert_close(result, expected)
        if shape.state in ("optional", "given"):
            assert_close(small(x, result[1]), model(x, expected[1]))
        for name, gate in thinrnn.gates(model).items():
            for k, layer in enumerate(small.layers):
                if f"layers.{k}.l0" in name.split("+"):
                    assert layer.hidden_size == max(1, int(gate.keep.sum()))
    assert thinrnn.verify(model, small, (x, state)) <= 1e-10


@A_HALF
@given(shapes(), SEVERAL)
def test_saved_and_loaded(shape: Shape, settings: list[GateSetting]) -> None:
    model, _ = gated_model(shape)
    x, state = shape.arguments(1)
    for setting in settings[:2]:
        setting.apply(model)
        small = compacted(model)
        with tempfile.TemporaryDirectory() as folder:
            loaded = thinrnn.load_(shape.model(seed=1), thinrnn.save(small, folder)).eval()
        assert_close(loaded(x, state), small(x, state), 0)


@A_HALF
@given(shapes(), SEVERAL)
def test_training_equals_the_slow_reference(shape: Shape, settings: list[GateSetting]) -> None:
    model, plan = gated_model(shape)
    model.train()
    plain = shape.model()
    x, state = shape.arguments(1)
    for setting in settings[:2]:
        setting.apply(model)
        result = output_of(model(x, state))
        sample = {name: z.requires_grad_() for name, z in attached(model).last.items()}
        expected = oracle(plain, plan, sample, x, state)
        torch.testing.assert_close(result, expected, rtol=1e-11, atol=1e-11)
        direction = torch.randn_like(expected)
        slow = torch.autograd.grad((expected * direction).sum(), list(plain.parameters()))
        weights = [p for n, p in model.named_parameters() if not n.startswith("thinrnn:")]
        fast = torch.autograd.grad((result * direction).sum(), weights)
        for a, b in zip(fast, slow, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def network(width: int = 6, depth: int = 3, seed: int = 0) -> Net:
    return Shape(5, width, depth, 1, False, 2, 4, "tied", "optional").model(seed)


TOKENS = torch.arange(8).view(4, 2) % VOCABULARY


def closed(model: Net, *neurons: int) -> Net:
    (gate,) = thinrnn.gates(model).values()
    value = torch.full((gate.size,), 1e4, dtype=torch.float64)
    value[list(neurons)] = -1e4
    gate.log_alpha = value
    return model


def attach(model: Net) -> Net:
    return thinrnn.attach_(model, thinrnn.find_groups(model, TOKENS))


def test_shrinking_leaves_outputs_and_training_as_they_were():
    models = [closed(attach(network()), 0, 4) for _ in range(2)]
    optimizers = [torch.optim.Adam(thinrnn.param_groups(m, lr=0.01, gate_lr=0.0)) for m in models]

    def step(model: Net, optimizer: torch.optim.Optimizer) -> Tensor:
        torch.manual_seed(1)
        loss = model(TOKENS)[0].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for turn in range(4):
        losses = [step(m, o) for m, o in zip(models, optimizers, strict=True)]
        torch.testing.assert_close(*losses, rtol=1e-10, atol=1e-10)
        if turn == 1:
            assert thinrnn.shrink_(models[0], optimizers[0]) == 2
            assert models[0].layers[0].hidden_size == models[0].layers[0].input_size == 4
    assert thinrnn.verify(models[0], thinrnn.compact(models[1]), TOKENS) < 1e-10


def test_a_fresh_model_is_cut_to_the_structure_of_a_shrunk_one():
    model = closed(attach(network()), 1, 2, 3)
    thinrnn.shrink_(model)
    fresh = thinrnn.cut_(attach(network(seed=1)), thinrnn.kept_neurons(model))
    fresh.load_state_dict(model.state_dict())
    model.eval(), fresh.eval()
    torch.testing.assert_close(fresh(TOKENS), model(TOKENS))


def test_a_target_is_met():
    model = network(width=16)
    most = thinrnn.count(model).params / 2
    target = thinrnn.Target(attach(model), params=0.5, steps=30)
    optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-3, gate_lr=0.1))
    for _ in range(40):
        loss = model(TOKENS)[0].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        target.step()
    assert thinrnn.count(thinrnn.compact(model)).params <= most


def test_l0_counts_each_pair_of_neurons_once_in_a_matrix():
    model = closed(attach(network()), 0, 1)
    pairs = thinrnn.L0(model, weight={"layers.0.weight_hh_d1": 1.0})()
    assert pairs.item() == pytest.approx(16)
    both = thinrnn.L0(model, weight=1.0)()
    assert both.item() == pytest.approx(4 * 16)  # three depths and the input


def test_group_lasso_owns_rows_and_columns_of_every_depth():
    model = network()
    lasso = thinrnn.GroupLasso(model, thinrnn.find_groups(model, TOKENS), weight=1.0)
    with torch.no_grad():
        model.front.weight[:, 2] = 0
        layer = model.layers[0]
        layer.weight_ih[[2, 8]] = 0
        layer.weight_ih[:, 2] = 0
        for d in range(3):
            getattr(layer, f"weight_hh_d{d}")[[2, 8]] = 0
            assert all(alive.all() for alive in lasso.alive().values())
            getattr(layer, f"weight_hh_d{d}")[:, 2] = 0
    (alive,) = lasso.alive().values()
    assert alive.tolist() == [True, True, False, True, True, True]
    assert thinrnn.compact(lasso.close_()).layers[0].hidden_size == 5


def test_magnitude_removes_the_weakest_neuron():
    model = network()
    with torch.no_grad():
        model.front.weight[:, 3] *= 1e-6
        for name, parameter in model.layers[0].named_parameters():
            if name.startswith("weight"):
                parameter[[3, 9]] *= 1e-6
                parameter[:, 3] *= 1e-6
    plan = thinrnn.find_groups(model, TOKENS)
    thinrnn.magnitude_(model, plan, params=0.85)
    (gate,) = thinrnn.gates(model).values()
    assert gate.keep.tolist() == [True, True, True, False, True, True]


def test_parameters_are_those_of_the_paper():
    model = nn.Module()
    model.rnn = RHN(830, 830, depth=10, device="meta")
    assert thinrnn.count(model).params == 2 * (2 * 830**2 + 830) + 18 * (830**2 + 830)


def test_a_given_state_and_every_layout_give_the_same():
    torch.manual_seed(0)
    rhn = RHN(3, 5, depth=2).double()
    x, hx = torch.randn(6, 2, 3).double(), torch.randn(1, 2, 5).double()
    output, h_n = rhn(x, hx)
    torch.testing.assert_close(h_n, output[-1:])
    first, h = rhn(x[:4], hx)
    second, _ = rhn(x[4:], h)
    torch.testing.assert_close(torch.cat([first, second]), output)
    one, h = rhn(x[:, 1], hx[:, 1])
    torch.testing.assert_close((one, h), (output[:, 1], h_n[:, 1]))
    rhn.batch_first = True
    other, h = rhn(x.transpose(0, 1), hx)
    torch.testing.assert_close((other.transpose(0, 1), h), (output, h_n))


def test_the_state_is_carried_at_the_start():
    rhn = RHN(3, 5, depth=1)
    assert rhn.bias_d0.tolist() == [0.0] * 5 + [-2.0] * 5
    rhn.reset_parameters(0.04)
    assert rhn.weight_hh_d0.abs().max() <= 0.04 < 1 / 5**0.5
    assert rhn.bias_d0.tolist() == [0.0] * 5 + [-2.0] * 5


def test_dropout_has_one_mask_for_all_steps_and_depths():
    rhn = RHN(3, 5, depth=3, dropout=0.4).double()
    x, s = torch.randn(4, 2, 3).double(), torch.randn(1, 2, 5).double()
    torch.manual_seed(5)
    output, _ = rhn(x, s)
    torch.manual_seed(5)
    mask = nn.functional.dropout(torch.ones(2, 5).double(), 0.4)
    assert 0 < (mask == 0).sum() < mask.numel()
    U = [getattr(rhn, f"weight_hh_d{d}") for d in range(3)]
    b = [getattr(rhn, f"bias_d{d}") for d in range(3)]
    expected, _ = reference.rhn(x, s[0], rhn.weight_ih, U, b, g=mask)
    torch.testing.assert_close(output, expected)
    rhn.eval()
    expected, _ = reference.rhn(x, s[0], rhn.weight_ih, U, b)
    torch.testing.assert_close(rhn(x, s)[0], expected)


@pytest.mark.parametrize("wrong", [torch.zeros(2, 5), torch.zeros(1, 2, 6), [torch.zeros(2, 5)]])
def test_a_state_of_another_shape_is_refused(wrong):
    with pytest.raises(StateError, match=r"\(1, 2, 5\)"):
        RHN(3, 5)(torch.zeros(4, 2, 3), wrong)


def test_packed_sequences_are_refused():
    packed = nn.utils.rnn.pack_sequence([torch.zeros(4, 3)])
    with pytest.raises(ThinRNNError, match=r"give a padded one, \(time, batch, features\)"):
        RHN(3, 5)(packed)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (torch.zeros(4, 2, 7), r"shape \(4, 2, 7\), but this layer reads 3 features"),
        (torch.zeros(4, 7), r"shape \(4, 7\), but this layer reads 3 features"),
        (torch.zeros(0, 2, 3), "without a time step"),
        (torch.zeros(3), r"give \(time, features\) or"),
        (
            torch.zeros(4, 2, 3).double(),
            r"weights are torch.float32: give input.to\(torch.float32\)",
        ),
        (torch.zeros(4, 2, 3, dtype=torch.long), r"input is torch.int64, but the weights"),
    ],
)
def test_an_input_of_another_shape_or_type_is_refused(wrong, message):
    with pytest.raises(ThinRNNError, match=message):
        RHN(3, 5)(wrong)


def test_autocast_takes_inputs_of_another_type():
    with torch.autocast("cpu", torch.bfloat16):
        output, _ = RHN(3, 5)(torch.zeros(4, 2, 3, dtype=torch.bfloat16))
    assert output.shape == (4, 2, 5)


def test_what_cannot_be_built_is_refused():
    with pytest.raises(ThinRNNError, match="1 or more"):
        RHN(3, 5, depth=0)
    for dropout in (-0.1, 1.5):
        with pytest.raises(ThinRNNError, match="must be from 0 to 1"):
            RHN(3, 5, dropout=dropout)


def test_the_returned_state_is_the_callers_own():
    rhn = RHN(3, 5, depth=2)
    output, h_n = rhn(torch.zeros(4, 2, 3), torch.ones(1, 2, 5))
    kept = output.detach().clone()
    with torch.no_grad():
        h_n.zero_()
    torch.testing.assert_close(output, kept)


def test_depths_may_share_their_matrix():
    model = network(depth=3)
    layer = model.layers[0]
    layer.weight_hh_d1 = layer.weight_hh_d2 = layer.weight_hh_d0
    small = thinrnn.compact(closed(attach(model), 0, 5).eval())
    assert thinrnn.verify(model, small, TOKENS) < 1e-10
    assert small.layers[0].hidden_size == 4
    assert small.layers[0].weight_hh_d2 is small.layers[0].weight_hh_d0


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = RHN(3, 6, depth=2), nn.LSTM(6, 7), RHN(7, 5, depth=2)
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.c(self.b(self.a(x)[0])[0])[0][-1])


def test_it_reads_and_is_read_by_other_layers():
    torch.manual_seed(0)
    model, x = Mixed().double(), torch.randn(4, 2, 3).double()
    plan = thinrnn.find_groups(model, x)
    assert [group.name for group in plan] == ["x", "a.l0", "b.l0", "c.l0"]
    thinrnn.attach_(model, plan).eval()
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.linspace(-4, 4, gate.size)
    small = thinrnn.compact(model)
    assert thinrnn.verify(model, small, x) < 1e-10
    assert small.c.input_size == small.b.hidden_size < 7
    assert small.b.input_size == small.a.hidden_size < 6
