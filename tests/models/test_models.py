"""Models as strangers write them, each taken from find_groups to the saved small model."""

import importlib
import json
from pathlib import Path

import pytest
from models import road
from models.case import CASES

import thinrnn

for domain in (
    "basics",
    "speech",
    "text",
    "control",
    "series",
    "vision",
    "channels",
    "plumbing",
    "states",
):
    importlib.import_module(f"models.{domain}")

EXPECTED = json.loads((Path(__file__).parent / "expected.json").read_text())


def test_every_model_is_expected() -> None:
    assert EXPECTED.keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_model(name: str, tmp_path: Path) -> None:
    case, expected = CASES[name], EXPECTED[name]
    model, example = road.build(case)
    before = road.snapshot(model)
    plan = thinrnn.find_groups(model, example, states=case.states)
    road.assert_same(before, road.snapshot(model))
    assert {group.name: group.size for group in plan.groups} == expected["groups"]
    found = {refusal.group.name: refusal.reason for refusal in plan.refused}
    assert found.keys() == expected["refused"].keys()
    for group, reason in expected["refused"].items():
        assert reason in found[group]
    if case.declare is not None:
        plan = case.declare(plan)
    if plan.groups:
        road.walk(case, model, example, plan, tmp_path)


@pytest.mark.extended
@pytest.mark.parametrize("name", ["DualPathSeparation", "KeywordOnlyTagger", "ManyModules"])
def test_model_through_norms(name: str, tmp_path: Path) -> None:
    model, example = road.build(CASES[name])
    kept = sum(group.size for group in thinrnn.find_groups(model, example))
    plan = thinrnn.find_groups(model, example, through_norms=True)
    assert sum(group.size for group in plan) > kept
    road.walk(CASES[name], model, example, plan, tmp_path)
