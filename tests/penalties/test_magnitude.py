"""The one-shot baseline: the neurons with the smallest weights go, down to a size."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paper_model import LanguageModel, paper_plan

import thinrnn
from thinrnn.errors import PlanError, TargetError
from thinrnn.plan import named_tensors

SIZES = (12, 10, 8)


def language_model(seed: int = 0) -> LanguageModel:
    torch.manual_seed(seed)
    return LanguageModel(20, SIZES[0], SIZES[1:])


@given(st.integers(0, 1000), st.sampled_from(["params", "macs"]), st.floats(0.2, 1.0))
def test_the_size_is_not_exceeded(seed: int, what: str, part: float) -> None:
    model = language_model(seed)
    full = getattr(thinrnn.count(model), what)
    assert thinrnn.magnitude_(model, paper_plan(*SIZES), **{what: part}) is model
    size = getattr(thinrnn.count(model), what)
    assert size <= part * full
    if part == 1:
        assert size == full
    small = thinrnn.compact(model.eval())
    words = torch.randint(20, (4, 3))
    torch.testing.assert_close(small(words), model(words))


def test_the_weakest_neurons_of_a_group_go() -> None:
    model, plan = language_model(), paper_plan(*SIZES)
    weak = {"embedding": [2, 7], "lstm1.l0": [0, 9], "lstm2.l0": [3]}
    tensors = named_tensors(model)
    with torch.no_grad():
        for name, neurons in weak.items():
            for part in plan[name].slices:
                positions, owners = part.index()
                for p, n in zip(positions.tolist(), owners.tolist(), strict=True):
                    if n in neurons:
                        tensors[part.parameter].select(part.dim, p).mul_(1e-3)
    exact = thinrnn.attach_(language_model(), plan)
    for name, gate in thinrnn.gates(exact).items():
        gate.log_alpha = torch.tensor([-9.0 if j in weak[name] else 9 for j in range(gate.size)])
    thinrnn.magnitude_(model, plan, params=thinrnn.count(exact).params)
    for name, gate in thinrnn.gates(model).items():
        assert (~gate.keep).nonzero().flatten().tolist() == weak[name]
        assert not gate.log_alpha.requires_grad


def test_training_continues_with_fixed_gates() -> None:
    model = thinrnn.magnitude_(language_model(), paper_plan(*SIZES), params=0.5)
    kept = {name: gate.keep.tolist() for name, gate in thinrnn.gates(model).items()}
    optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-2))
    words = torch.randint(20, (4, 3))
    thinrnn.shrink_(model, optimizer)
    losses = []
    for _ in range(10):
        loss = torch.nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert {n: g.origin.tolist() for n, g in thinrnn.gates(model).items()} == {
        n: [j for j, is_kept in enumerate(mask) if is_kept] for n, mask in kept.items()
    }


def test_what_cannot_be_done_leaves_the_model_without_gates() -> None:
    model, plan = language_model(), paper_plan(*SIZES)
    before = list(model.state_dict())
    with pytest.raises(TargetError, match="cannot be met"):
        thinrnn.magnitude_(model, plan, params=0.001)
    with pytest.raises(TargetError, match="give params= or macs= or both"):
        thinrnn.magnitude_(model, plan)
    with pytest.raises(PlanError, match="another size"):
        thinrnn.magnitude_(model, paper_plan(13, 10, 8), params=0.5)
    assert list(model.state_dict()) == before
    thinrnn.attach_(model, plan)
