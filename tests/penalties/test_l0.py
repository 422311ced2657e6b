"""The paper's penalty against a double loop over pairs of neurons."""

import pytest
import torch
from grids import A_QUARTER, GateSetting, Shape, gate_settings, gated_model, shapes
from hypothesis import given
from paper_model import dense_model, paper_plan
from torch import nn

import thinrnn
from thinrnn.errors import GateError, PlanError
from thinrnn.plan import Plan

Owners = dict[int, tuple[str, int]]  # position -> group and neuron


def owners(plan: Plan, parameter: str, dim: int) -> Owners:
    found: Owners = {}
    for group in plan:
        for part in group.slices:
            if (part.parameter, part.dim) == (parameter, dim):
                for position, neuron in zip(*(i.tolist() for i in part.index()), strict=True):
                    found[position] = (group.name, neuron)
    return found


def expected_pairs(model: nn.Module, plan: Plan, parameter: str, cells: int) -> float:
    """How many pairs of neurons a matrix is expected to connect, each pair once."""
    phi = {name: gate.open_probability.tolist() for name, gate in thinrnn.gates(model).items()}
    rows, columns = owners(plan, parameter, 0), owners(plan, parameter, 1)
    total = 0.0
    for i in range(cells):  # the first of the cell's gates stands for all of them
        for j in range(model.get_parameter(parameter).shape[1]):
            a, b = rows.get(i), columns.get(j)
            both = 1.0
            for group, neuron in {a, b} - {None}:  # a neuron that reads itself is there once
                both *= phi[group][neuron]
            total += both
    return total


@A_QUARTER
@given(shapes(), gate_settings())
def test_a_pair_of_neurons_counts_once_per_matrix(shape: Shape, setting: GateSetting) -> None:
    model, plan = gated_model(shape)
    setting.apply(model)
    matrices = [n for n, _ in model.named_parameters() if n.startswith("rnn.weight")]
    cells = {n: shape.outputs if "weight_hr" in n else shape.hidden for n in matrices}
    pairs = {n: expected_pairs(model, plan, n, cells[n]) for n in matrices}
    total = thinrnn.L0(model, weight=0.5)()
    assert total.item() == pytest.approx(0.5 * sum(pairs.values()), rel=1e-9)
    weights = {"rnn.weight_ih_l0": 2.0, "rnn.weight_hh_*": 3.0, "rnn.weight_hh_l0": 100.0}
    one_each = thinrnn.L0(model, weight=weights)().item()
    recurrent = sum(count for name, count in pairs.items() if "weight_hh" in name)
    assert one_each == pytest.approx(2 * pairs["rnn.weight_ih_l0"] + 3 * recurrent, rel=1e-9)


def test_formula_of_the_paper() -> None:
    model, plan = gated_model(Shape())
    names = [group.name for group in plan]
    assert names == ["front", "rnn.l0", "rnn.l1"]
    gates = thinrnn.gates(model)
    for gate in gates.values():
        gate.log_alpha = torch.randn(gate.size)
    z, s1, s2 = (gates[name].open_probability for name in names)
    lambdas = [1e-1, 2e-1, 3e-1, 4e-1]
    expected = (
        lambdas[0] * z.sum() * s1.sum()
        + lambdas[1] * (s1.sum() ** 2 - (s1**2).sum() + s1.sum())
        + lambdas[2] * s1.sum() * s2.sum()
        + lambdas[3] * (s2.sum() ** 2 - (s2**2).sum() + s2.sum())
    )
    matrices = [f"rnn.weight_{kind}_l{k}" for k in (0, 1) for kind in ("ih", "hh")]
    penalty = thinrnn.L0(model, weight=dict(zip(matrices, lambdas, strict=True)))
    torch.testing.assert_close(penalty(), expected)
    parameters = [gate.log_alpha for gate in gates.values()]
    torch.testing.assert_close(
        torch.autograd.grad(penalty(), parameters), torch.autograd.grad(expected, parameters)
    )


def test_the_paper_s_model_starts_at_two_thirds_of_a_nat() -> None:
    model = dense_model(device="meta").to_empty(device="cpu")  # no weight is ever looked at
    thinrnn.attach_(model, paper_plan())
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = 1.0
    assert thinrnn.L0(model, weight=0.08 / 929_589)().item() == pytest.approx(0.67, abs=5e-3)


def test_removed_neurons_count_nothing() -> None:
    model, _ = gated_model(Shape(kind="GRU", bidirectional=True))
    penalty = thinrnn.L0(model, weight=1.0)
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.where(torch.arange(gate.size) < 2, -60.0, gate.log_alpha)
    before = penalty()
    assert thinrnn.shrink_(model) > 0
    torch.testing.assert_close(penalty(), before)
    torch.testing.assert_close(thinrnn.L0(model, weight=1.0)(), before)


def test_other_matrices_may_be_named() -> None:
    model, _ = gated_model(Shape(kind="GRU", bidirectional=True))
    gates = thinrnn.gates(model)
    penalty = thinrnn.L0(model, weight={"head.weight": 2.0, "head.bias": 1.0})()
    readers = (
        gates["rnn.l1"].open_probability.sum() + gates["rnn.l1_reverse"].open_probability.sum()
    )
    torch.testing.assert_close(penalty, 2 * 3 * readers + 3)


def test_what_cannot_be_penalised() -> None:
    model, _ = gated_model(Shape(kind="GRU", bidirectional=True))
    with pytest.raises(PlanError, match=r"'lstm\.\*'; recurrent are: rnn\.weight_ih_l0, "):
        thinrnn.L0(model, weight={"rnn.weight_hh_l0": 1.0, "lstm.*": 1.0})
    with pytest.raises(GateError, match="attach_"):
        thinrnn.L0(nn.LSTM(2, 3), weight=1.0)
