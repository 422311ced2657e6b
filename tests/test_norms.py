"""Plans that go through norms: gated in eval equals compact."""

import copy
import tempfile
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from grids import A_QUARTER
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import thinrnn

NORMS = {
    "layer": lambda n: nn.LayerNorm(n),
    "layer without parameters": lambda n: nn.LayerNorm(n, elementwise_affine=False),
    "layer without bias": lambda n: nn.LayerNorm(n, bias=False),
    "root mean square": lambda n: nn.RMSNorm(n, eps=1e-6),
    "one group": lambda n: nn.GroupNorm(1, n),
    "two groups": lambda n: nn.GroupNorm(2, n),
    "two groups without parameters": lambda n: nn.GroupNorm(2, n, affine=False),
    "group per channel": lambda n: nn.GroupNorm(n, n),
}


@dataclass(frozen=True)
class Shape:
    norm: str
    where: str  # before the layer, after it, in a residual branch, over two layers side by side
    kind: str
    n: int
    seed: int

    def model(self) -> "Net":
        torch.manual_seed(self.seed)
        model = Net(self).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.3 * torch.randn_like(parameter)
        return model


class Net(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.where, n = shape.where, shape.n
        make = {"GRU": nn.GRU, "LSTM": nn.LSTM, "RNN": nn.RNN}[shape.kind]
        self.first = nn.Linear(3, n)
        self.rnn = make(n, n, batch_first=True)
        self.other = make(n, n, batch_first=True)
        width = 2 * n if self.where == "side by side" else n
        self.norm = NORMS[shape.norm](width)
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor, state: Any = None) -> Any:
        x = self.first(x)
        if self.where == "before":
            h, state = self.rnn(self.normed(x), state)
            return self.head(h), state
        h, state = self.rnn(x, state)
        if self.where == "after":
            return self.head(self.normed(h)), state
        if self.where == "residual":
            return self.head(self.normed(x + self.other(h)[0])), state
        return self.head(self.normed(torch.cat([h, self.other(x)[0]], -1))), state

    def normed(self, x: Tensor) -> Tensor:
        if isinstance(self.norm, nn.GroupNorm):
            return self.norm(x.transpose(1, 2)).transpose(1, 2)
        return self.norm(x)


def nets() -> st.SearchStrategy[Shape]:
    return st.builds(
        Shape,
        norm=st.sampled_from(list(NORMS)),
        where=st.sampled_from(["before", "after", "residual", "side by side"]),
        kind=st.sampled_from(["GRU", "LSTM", "RNN"]),
        n=st.sampled_from([4, 6]),
        seed=st.integers(0, 99),
    )


def set_gates(model: nn.Module) -> None:
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.randn(gate.size) * 4 + 0.5


def compacted(model: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of groups whose neurons are all closed
        return thinrnn.compact(model)


def assert_close(a: Tensor, b: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


@A_QUARTER
@given(nets())
def test_gated_equals_compact_shrunk_and_loaded(shape: Shape) -> None:
    model = shape.model()
    x, y = (torch.randn(2, 4, 3).double() for _ in range(2))
    plan = thinrnn.find_groups(model, x, through_norms=True)
    through = {norm.module for group in plan for norm in group.norms}
    assert through == {"norm"}, plan
    assert thinrnn.Plan.from_json(plan.to_json()) == plan
    thinrnn.attach_(model, plan)
    for _ in range(3):
        set_gates(model)
        small = compacted(model)
        assert thinrnn.verify(model, small, x) <= 1e-10
        expected, state = model(x)
        found, small_state = small(x)
        assert_close(found, expected)
        assert_close(small(y, small_state)[0], model(y, state)[0])
    expected = model(x)[0]
    thinrnn.shrink_(model)
    assert_close(model(x)[0], expected)
    set_gates(model)
    assert thinrnn.verify(model, compacted(model), x) <= 1e-10


@A_QUARTER
@given(nets())
def test_saved_and_loaded(shape: Shape) -> None:
    model, x = shape.model(), torch.randn(2, 4, 3).double()
    fresh = copy.deepcopy(model)
    thinrnn.attach_(model, thinrnn.find_groups(model, x, through_norms=True))
    set_gates(model)
    small = compacted(model)
    with tempfile.TemporaryDirectory() as folder:
        thinrnn.load_(fresh, thinrnn.save(small, folder))
    assert_close(fresh(x)[0], small(x)[0], 0)
    assert vars(fresh.norm).get("normalized_shape") == vars(small.norm).get("normalized_shape")


class Cell(nn.Module):
    """An LSTM written by hand, with one norm over its four gates and one over its cells."""

    def __init__(self, inputs: int, n: int) -> None:
        super().__init__()
        self.n = n
        self.read = nn.Linear(inputs, 4 * n, bias=False)
        self.again = nn.Linear(n, 4 * n, bias=False)
        self.gate_norm = nn.LayerNorm(4 * n)
        self.cell_norm = nn.LayerNorm(n)

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, list[Tensor]]:
        if state is None:
            state = [x.new_zeros(x.size(0), self.n) for _ in range(2)]
        h, c = state
        outputs = []
        for gates in self.read(x).unbind(1):
            i, f, g, o = self.gate_norm(gates + self.again(h)).chunk(4, 1)
            c = self.cell_norm(f.sigmoid() * c + i.sigmoid() * g.tanh())
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs, 1), [h, c]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = Cell(3, 5)
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor, state: Any = None) -> Any:
        x, state = self.cell(x, state)
        return self.head(x), state


def test_a_cell_with_norms_inside() -> None:
    torch.manual_seed(0)
    model, x = Recurrent().double().eval(), torch.randn(2, 3, 3).double()
    plan = thinrnn.find_groups(model, x, states=["1.*"], through_norms=True)
    assert [group.size for group in plan] == [3, 5]
    thinrnn.attach_(model, plan)
    for _ in range(5):
        set_gates(model)
        small = compacted(model)
        assert thinrnn.verify(model, small, x) <= 1e-10
        expected, state = model(x)
        found, small_state = small(x)
        assert_close(found, expected)
        assert_close(small(x, small_state)[0], model(x, state)[0])
        assert small.cell.gate_norm.normalized_shape == (4 * small.cell.n,)
        assert small.cell.cell_norm.weight.shape == (small.cell.n,)


def trained(steps: int = 20) -> tuple[nn.Module, Tensor]:
    model, x = Shape("layer", "residual", "GRU", 6, 0).model(), torch.randn(4, 5, 3).double()
    plan = thinrnn.find_groups(model, x, through_norms=True)
    thinrnn.attach_(model.train(), plan)
    target = thinrnn.Target(model, params=0.5, steps=steps)
    optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-2, gate_lr=0.3))
    for _ in range(2 * steps):
        model(x)[0].square().mean().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
        optimizer.step()
        optimizer.zero_grad()
        target.step()
    thinrnn.shrink_(model, optimizer)
    return model, x


def test_training_with_a_target() -> None:
    model, x = trained()
    small = thinrnn.compact(model)
    assert thinrnn.verify(model, small, x) <= 1e-10
    dense = thinrnn.count(Shape("layer", "residual", "GRU", 6, 0).model()).params
    assert thinrnn.count(small).params <= dense / 2


def test_gates_learn_what_they_do_to_the_statistics() -> None:
    """With one neuron that is always open as the only reader, gates act through the norm alone."""
    model = nn.Sequential(nn.Linear(3, 6), nn.LayerNorm(6), nn.RNNCell(6, 4)).double()
    x = torch.randn(2, 3).double()
    thinrnn.attach_(model, thinrnn.find_groups(model, x, through_norms=True).only("0+1"))
    with torch.no_grad():
        model[2].weight_ih[:, 1:] = 0
    gate = thinrnn.gates(model)["0+1"]
    gate.log_alpha = 0.0
    model.eval()(x).sum().backward()
    assert (gate.log_alpha.grad[1:] != 0).any()


def test_all_neurons_closed() -> None:
    model, x = Shape("layer", "side by side", "GRU", 4, 0).model(), torch.randn(2, 4, 3).double()
    thinrnn.attach_(model, thinrnn.find_groups(model, x, through_norms=True))
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.linspace(-9, -8, gate.size)
    assert thinrnn.verify(model, compacted(model), x) <= 1e-10
    model.train()
    assert model(x)[0].isfinite().all()


def test_a_norm_called_alone_counts_open_neurons_only() -> None:
    model, x = Shape("layer", "after", "GRU", 6, 0).model(), torch.randn(2, 4, 3).double()
    thinrnn.attach_(model, thinrnn.find_groups(model, x, through_norms=True))
    (name,) = [name for name in thinrnn.gates(model) if "norm" in name]
    gate = thinrnn.gates(model)[name]
    gate.log_alpha = torch.tensor([9.0, -9, 9, 9, -9, 9])
    h = torch.randn(2, 6).double()
    assert_close(model.norm(h)[:, gate.keep], thinrnn.compact(model).norm(h[:, gate.keep]))


def test_without_asking_norms_stay_as_they_are() -> None:
    model, x = Shape("layer", "after", "GRU", 6, 0).model(), torch.randn(2, 4, 3).double()
    plan = thinrnn.find_groups(model, x)
    (refusal,) = [r for r in plan.refused if r.group.name == "rnn.l0"]
    assert "'norm' (LayerNorm)" in refusal.reason
    assert "find_groups(..., through_norms=True)" in refusal.reason


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(3, 6, batch_first=True)
        self.gamma, self.beta = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = nn.functional.layer_norm(self.rnn(x)[0], (6,), self.gamma, self.beta)
        return self.head(h)


@pytest.mark.parametrize("through_norms", [False, True])
def test_norms_as_functions_are_refused_by_name(through_norms: bool) -> None:
    plan = thinrnn.find_groups(Functional(), torch.randn(2, 4, 3), through_norms=through_norms)
    (refusal,) = [r for r in plan.refused if r.group.name == "rnn.l0"]
    assert "torch.nn.functional.layer_norm with" in refusal.reason


def test_a_norm_with_a_forward_of_its_own_is_refused() -> None:
    class ChannelsFirst(nn.LayerNorm):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.transpose(1, 2)).transpose(1, 2)

    model, x = Shape("one group", "after", "GRU", 6, 0).model(), torch.randn(2, 4, 3).double()
    model.norm = ChannelsFirst(6).double()
    model.normed = lambda h: model.norm(h.transpose(1, 2)).transpose(1, 2)
    plan = thinrnn.find_groups(model, x, through_norms=True)
    assert not any(group.norms for group in plan)
    assert "rnn.l0" in [refusal.group.name for refusal in plan.refused]


def test_sizes_are_not_rounded_up_with_norms() -> None:
    model, _ = trained(2)
    with pytest.raises(thinrnn.PlanError, match="norms in this plan"):
        thinrnn.compact(model, round_to=4)


def test_a_plan_for_another_size_does_not_fit() -> None:
    x = torch.randn(2, 4, 3).double()
    shape = Shape("layer without parameters", "after", "GRU", 6, 0)
    plan = thinrnn.find_groups(shape.model(), x, through_norms=True)
    model = shape.model()
    model.norm = nn.LayerNorm(4, elementwise_affine=False)
    with pytest.raises(thinrnn.PlanError, match="goes through the norm 'norm' up to channel 5"):
        thinrnn.attach_(model, plan)


def test_prune_and_magnitude_take_such_plans() -> None:
    model = Shape("layer", "residual", "GRU", 6, 0).model()
    calls = [torch.randn(4, 5, 3).double() for _ in range(4)]
    plan = thinrnn.find_groups(model, calls[0], through_norms=True)
    small = thinrnn.prune(model, calls, params=0.6, plan=plan)
    assert small.norm.normalized_shape[0] < 6
    thinrnn.magnitude_(model, plan, params=0.6)
    assert thinrnn.verify(model, thinrnn.compact(model), calls[0]) <= 1e-10


@pytest.mark.extended
def test_exported_to_onnx(tmp_path: Any) -> None:
    model, x = trained()
    small = thinrnn.compact(model).float()
    thinrnn.export_onnx(small, tmp_path / "small.onnx", x.float())  # compares the outputs itself
    assert (tmp_path / "small.onnx").exists()
