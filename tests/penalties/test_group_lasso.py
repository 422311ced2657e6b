"""The group lasso baseline against a slow count of what each neuron owns."""

import math

import pytest
import torch
from grids import A_QUARTER, Shape, shapes
from hypothesis import given
from torch import Tensor, nn

import thinrnn
from thinrnn._penalties.group_lasso import squared_norms
from thinrnn.plan import Plan


def owned_weights(model: nn.Module, plan: Plan) -> dict[str, list[dict[tuple[int, ...], float]]]:
    """Per group and neuron, every element of a matrix that it owns, each once."""
    tensors = dict(model.named_parameters(remove_duplicate=False))
    found = {}
    for group in plan:
        rows: list[dict[tuple[int, ...], float]] = [{} for _ in range(group.size)]
        for part in group.slices:
            tensor = tensors[part.parameter]
            if tensor.dim() < 2:
                continue
            positions, neurons = part.index()
            for p, n in zip(positions.tolist(), neurons.tolist(), strict=True):
                for place in torch.ones(tensor.shape).nonzero().tolist():
                    if place[part.dim] == p:
                        rows[n][id(tensor), *place] = tensor[tuple(place)].item()
        found[group.name] = rows
    return found


@A_QUARTER
@given(shapes(layers=1, hidden=3, projected=2))
def test_norms_count_each_weight_once(shape: Shape) -> None:
    model = shape.model()
    plan = thinrnn.find_groups(model, shape.arguments())
    expected = {
        name: [sum(w * w for w in own.values()) for own in rows]
        for name, rows in owned_weights(model, plan).items()
    }
    for group in plan:
        norms = squared_norms(model, group)
        assert norms.tolist() == pytest.approx(expected[group.name], rel=1e-9)
    total = sum(math.sqrt(s) for row in expected.values() for s in row)
    penalty = thinrnn.GroupLasso(model, plan, weight=0.5)()
    assert penalty.item() == pytest.approx(0.5 * total, rel=1e-6)


def model_and_plan() -> tuple[nn.Module, Plan]:
    shape = Shape(front="embedding", layers=2, hidden=6, inputs=6)
    model = shape.model()
    return model, thinrnn.find_groups(model, shape.arguments())


def test_the_penalty_drives_whole_neurons_to_zero() -> None:
    model, plan = model_and_plan()
    lasso = thinrnn.GroupLasso(model, plan, weight=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        lasso().backward()
        optimizer.step()
        lasso.threshold_(0.02)
    alive = lasso.alive()
    assert not any(mask.any() for mask in alive.values())
    assert all(p.isfinite().all() for p in model.parameters())


def test_the_gradient_at_zero_is_a_number() -> None:
    model, plan = model_and_plan()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    thinrnn.GroupLasso(model, plan, weight=1.0)().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_small_weights_of_the_groups_are_set_to_zero() -> None:
    model, plan = model_and_plan()
    before = {name: p.clone() for name, p in model.named_parameters()}
    lasso = thinrnn.GroupLasso(model, plan.only("rnn.l0"), weight=1.0)
    lasso.threshold_(0.2)
    after = dict(model.named_parameters())
    touched = {"rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.weight_ih_l1"}
    for name, old in before.items():
        expected = old.masked_fill(old.abs() < 0.2, 0) if name in touched else old
        assert torch.equal(after[name], expected), name


def test_neurons_without_weights_are_cut_off_exactly() -> None:
    model, plan = model_and_plan()
    gone = {"front": [0, 3], "rnn.l0": [1], "rnn.l1": [2, 4, 5]}
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    with torch.no_grad():
        for name, neurons in gone.items():
            for part in plan[name].slices:
                positions, owners = part.index()
                dead = positions[torch.isin(owners, torch.tensor(neurons))]
                if tensors[part.parameter].dim() > 1:  # biases keep driving the states
                    tensors[part.parameter].index_fill_(part.dim, dead, 0)
    lasso = thinrnn.GroupLasso(model, plan, weight=1.0)
    for name, mask in lasso.alive().items():
        assert (~mask).nonzero().flatten().tolist() == gone[name]
    x = torch.randint(7, (4, 3))
    expected = model.eval()(x)
    assert lasso.close_() is model
    torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-12)
    small = thinrnn.compact(model)
    torch.testing.assert_close(small(x), expected, rtol=0, atol=1e-12)
    assert small.rnn.hidden_size == (5, 3)
    assert small.front.embedding_dim == 4
    gates = [gate.log_alpha for gate in thinrnn.gates(model).values()]
    assert not any(gate.requires_grad for gate in gates)
