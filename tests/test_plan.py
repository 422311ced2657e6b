"""Plans as data: text and back, chosen parts, written by hand, checked against a model."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from grids import A_QUARTER, Shape, shapes
from hypothesis import given
from hypothesis import strategies as st
from paper_model import LanguageModel, paper_plan
from torch import Tensor, nn

import thinrnn
from thinrnn.errors import PlanError
from thinrnn.group import Group, SizeAttribute, Slice
from thinrnn.plan import Plan, Refusal

SIZES = (6, 5, 4)


def language_model() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(9, SIZES[0], SIZES[1:])


@A_QUARTER
@given(shapes())
def test_text_and_back(shape: Shape) -> None:
    plan = thinrnn.find_groups(shape.model(), shape.arguments())
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.to_json() == plan.to_json()
    json.loads(plan.to_json())


def test_text_keeps_refusals_and_arguments() -> None:
    group = Group("a", 2, (Slice("w", 1, "read", ((0, 0, 2),)),))
    plan = Plan((group,), (Refusal(group, "because", ("v",)),), ("rnn.state",))
    assert Plan.from_json(plan.to_json()) == plan


def test_text_keeps_attributes_and_may_lack_them() -> None:
    group = Group("a", 2, (Slice("w", 1, "read", ((0, 0, 2),)),), (SizeAttribute("b.size", 3),))
    plan = Plan((group,))
    assert Plan.from_json(plan.to_json()) == plan
    assert "b.size" in str(plan)
    old = json.loads(plan.to_json())
    del old["groups"][0]["sets"]  # as written before attributes could follow a size
    assert Plan.from_json(json.dumps(old))["a"].sets == ()


def test_attributes_that_do_not_fit_are_refused() -> None:
    plan, model = paper_plan(*SIZES), language_model()
    model.width = SIZES[0]

    def setting(number: int, *attributes: SizeAttribute) -> Plan:
        groups = list(plan.groups)
        groups[number] = replace(groups[number], sets=attributes)
        return replace(plan, groups=tuple(groups))

    setting(0, SizeAttribute("width")).check(model)
    for attribute in (SizeAttribute("width", 2), SizeAttribute("other"), SizeAttribute("no.width")):
        with pytest.raises(PlanError, match=f"'{attribute.name}'"):
            setting(0, attribute).check(model)
    both = setting(0, SizeAttribute("width"))
    twice = replace(both, groups=(*both.groups, replace(both.groups[0], name="again")))
    with pytest.raises(PlanError, match="both set 'width'"):
        twice.check(model)


def test_found_and_hand_written_are_the_same() -> None:
    found = thinrnn.find_groups(language_model(), torch.randint(9, (3, 2)))
    by_hand = paper_plan(*SIZES)
    assert [g.name for g in found] == [g.name for g in by_hand]
    for group in found:
        assert group.size == by_hand[group.name].size
        assert set(group.slices) == set(by_hand[group.name].slices)


def test_a_hand_written_plan_prunes() -> None:
    model = thinrnn.attach_(language_model(), paper_plan(*SIZES)).eval()
    thinrnn.gates(model)["lstm1.l0"].log_alpha = torch.tensor([-9.0, 1, 1, -9, 0])
    small = thinrnn.compact(model)
    assert small.lstm1.hidden_size == 3
    assert thinrnn.verify(model, small, torch.randint(9, (3, 2))) < 1e-6


def test_dimensions_may_be_counted_from_the_end() -> None:
    def negative(s: Slice) -> Slice:
        dims = 1 if "bias" in s.parameter else 2
        return Slice(s.parameter, s.dim - dims, s.role, s.runs)

    plan = Plan(
        tuple(Group(g.name, g.size, tuple(map(negative, g.slices))) for g in paper_plan(*SIZES))
    )
    assert plan.fitted(language_model()) == paper_plan(*SIZES)
    model = thinrnn.attach_(language_model(), plan).eval()
    thinrnn.gates(model)["lstm2.l0"].log_alpha = torch.tensor([-9.0, 1, 1, 0])
    assert thinrnn.compact(model).lstm2.hidden_size == 3
    thinrnn.GroupLasso(language_model(), plan, weight=1.0)()


def test_only_and_without() -> None:
    plan = paper_plan(*SIZES)
    assert [g.name for g in plan.only("lstm*")] == ["lstm1.l0", "lstm2.l0"]
    assert [g.name for g in plan.only("embedding", "lstm2.l0")] == ["embedding", "lstm2.l0"]
    assert [g.name for g in plan.without("lstm*")] == ["embedding"]
    assert plan.without() == plan
    assert len(plan.without("*")) == 0
    for call in (plan.only, plan.without):
        with pytest.raises(PlanError, match=r"no group matches 'gru\*'; there are: 'embedding', "):
            call("gru*")
    assert plan["embedding"].size == 6
    with pytest.raises(PlanError, match="no group 'decoder' in this plan; there are: 'embedding'"):
        plan["decoder"]


def test_a_refused_group_has_a_reason() -> None:
    plan = thinrnn.find_groups(language_model(), torch.randint(9, (3, 2)))
    with pytest.raises(PlanError, match="group 'decoder' is refused: returned to the caller"):
        plan["decoder"]
    with pytest.raises(PlanError, match=r"'decoder' stays refused.*returned to the caller"):
        plan.using("decoder", "lstm1.weight_ih_l0", dim=1)


class Attention(nn.Module):
    """Two raw parameters read the neurons, at places that find_groups does not try."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(3, 6, batch_first=True)
        self.query = nn.Parameter(torch.randn(11))
        self.key = nn.Parameter(torch.randn(11, 2))
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.rnn(x)[0]
        scores = h @ self.query[5:] + (h @ self.key[5:]).tanh().sum(-1)
        return self.head((torch.softmax(scores, 1)[..., None] * h).sum(1))


def test_raw_parameters_are_declared_one_by_one() -> None:
    torch.manual_seed(0)
    model, x = Attention().double().eval(), torch.randn(2, 5, 3).double()
    plan = thinrnn.find_groups(model, x)
    assert [g.name for g in plan] == ["x"]
    (refusal,) = [r for r in plan.refused if r.group.name == "rnn.l0"]
    assert set(refusal.undeclared) == {"query", "key"}
    half = plan.using("rnn.l0", "query", dim=0, at=(5,))
    assert [g.name for g in half] == ["x"]
    (left,) = [r for r in half.refused if r.group.name == "rnn.l0"]
    assert left.undeclared == ("key",)
    whole = half.using("rnn.l0", "key", dim=0, at=(5,))
    assert [g.name for g in whole] == ["x", "rnn.l0"]
    assert Plan.from_json(whole.to_json()) == whole
    thinrnn.attach_(model, whole)
    thinrnn.gates(model)["rnn.l0"].log_alpha = torch.tensor([0.3, -9, 2, 1, -9, 0])
    small = thinrnn.compact(model)
    assert small.query.shape == (9,)
    assert small.key.shape == (9, 2)
    assert thinrnn.verify(model, small, x) < 1e-12


def test_several_places_of_one_parameter() -> None:
    plan = paper_plan(*SIZES).using("embedding", "raw", dim=1, at=(0, 6))
    added = plan["embedding"].slices[-1]
    assert added == Slice("raw", 1, "read", ((0, 0, 6), (6, 0, 6)))
    positions, neurons = added.index()
    assert positions.tolist() == list(range(12))
    assert neurons.tolist() == [*range(6), *range(6)]


@given(st.permutations(range(7)), st.integers(1, 7))
def test_slices_are_short_and_exact(order: list[int], count: int) -> None:
    positions, neurons = torch.tensor(order[:count]) * 2, torch.arange(count)
    back = Slice.of("w", 0, "read", positions, neurons).index()
    pairs = dict(zip(*(t.tolist() for t in back), strict=True))
    assert pairs == dict(zip(positions.tolist(), neurons.tolist(), strict=True))
    straight = Slice.of("w", 0, "read", torch.arange(count) + 3, torch.arange(count))
    assert straight.runs == ((3, 0, count),)


def test_the_table() -> None:
    plan = thinrnn.find_groups(Attention(), torch.randn(2, 5, 3))
    table = str(plan)
    lines = [line.split() for line in table.splitlines()]
    assert lines[0] == ["group", "size", "produced", "by", "read", "by"]
    assert lines[2][:2] == ["x", "3"]
    assert "the caller (input selection)" in table
    assert "refused" in table
    assert "plan.using('rnn.l0', " in table
    assert "refused" not in str(paper_plan(*SIZES))


def group_with(*slices: Slice, size: int = 5) -> Plan:
    return Plan((Group("g", size, slices),))


WRONG: dict[str, tuple[Plan, str]] = {
    "unknown parameter": (
        group_with(Slice("lstm9.weight_hh_l0", 1, "read", ((0, 0, 5),))),
        r"'g' names 'lstm9\.weight_hh_l0', which the model does not have.*find_groups",
    ),
    "too many positions": (
        group_with(Slice("lstm1.weight_hh_l0", 1, "read", ((0, 0, 6),)), size=6),
        r"position 5 and neuron 5, but its shape is \(20, 5\)",
    ),
    "too many neurons": (
        group_with(Slice("lstm1.weight_hh_l0", 1, "read", ((0, 0, 5),)), size=4),
        "the group has 4 neurons",
    ),
    "no such dimension": (
        group_with(Slice("lstm1.weight_hh_l0", 2, "read", ((0, 0, 5),))),
        "dim 2",
    ),
    "no positions": (group_with(Slice("lstm1.weight_hh_l0", 1, "read", ())), r"runs \(\)"),
    "negative position": (
        group_with(Slice("lstm1.weight_hh_l0", 1, "read", ((-1, 0, 5),))),
        "counted from 0",
    ),
    "empty run": (
        group_with(Slice("lstm1.weight_hh_l0", 1, "read", ((0, 0, 0),))),
        "counted from 0",
    ),
    "no layer reads": (
        group_with(Slice("lstm1.weight_hh_l0", 0, "produce", ((0, 0, 5),))),
        "'g' is read by nothing",
    ),
    "two owners": (
        group_with(
            Slice("lstm1.weight_hh_l0", 1, "read", ((0, 0, 5),)),
            Slice("lstm1.weight_hh_l0", 1, "read", ((0, 1, 4),)),
        ),
        "position 0 of 'lstm1.weight_hh_l0', dim 1, belongs to neuron 1 of 'g' and to neuron 0",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_plans_that_do_not_fit_are_refused(case: str) -> None:
    plan, message = WRONG[case]
    model = language_model()
    for call in (plan.check, lambda m: thinrnn.attach_(m, plan)):
        with pytest.raises(PlanError, match=message):
            call(model)
    assert list(model.state_dict()) == list(language_model().state_dict())


def test_two_groups_of_one_name() -> None:
    group = paper_plan(*SIZES)["embedding"]
    with pytest.raises(PlanError, match="two groups are called 'embedding'"):
        Plan((group, group))


def text(**changes: Any) -> str:
    data = json.loads(paper_plan(*SIZES).to_json())
    return json.dumps({**data, **changes})


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", "not JSON"),
        ("[]", "the file: .*an object"),
        ("{}", "thinrnn_plan: field required"),
        ("null", "the file: .*an object"),
        (text(thinrnn_plan=7), "thinrnn_plan: input should be 1, found 7"),
        (text(groups=None), "groups: .*found None"),
        (text(groups=[{"name": "a"}]), "groups.0.size: field required"),
        (
            text(groups=[{"name": "a", "size": 1, "slices": [{"parameter": "w", "role": "eat"}]}]),
            "groups.0.slices.0.dim: field required",
        ),
        (
            text(
                groups=[
                    {
                        "name": "a",
                        "size": 1,
                        "slices": [{"parameter": "w", "dim": 0, "role": "read", "runs": [[1]]}],
                    }
                ]
            ),
            "runs.0.1: field required",
        ),
    ],
)
def test_text_that_is_no_plan(written: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Plan.from_json(written)
