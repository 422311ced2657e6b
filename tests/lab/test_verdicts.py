"""The verdicts on a run hold exactly where its figures reach what they should."""

import math
from typing import Any

import pytest

from thinrnn.lab.verdicts import verdicts

DENSE = {"valid_perplexity": 100.0, "weights": 900, "params": 1000, "macs": 900}
SMALL = {"valid_perplexity": 103.0, "weights": 299, "params": 320, "macs": 299}
CONTROL = {"valid_perplexity": 103.0, "weights": 299, "params": 320, "macs": 299}


def holds(config: dict[str, Any], **changes: Any) -> list[bool]:
    models = {"dense": DENSE, "small": {**SMALL, **changes}, "control": CONTROL}
    return [verdict.holds for verdict in verdicts(config, models)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [True, True, True]),
        ({"valid_perplexity": 103.01}, [False, False, True]),
        ({"weights": 300}, [True, True, False]),
        ({"valid_perplexity": math.inf}, [False, False, False, True]),  # the first: no number
    ],
)
def test_the_demo(changes: dict[str, float], expected: list[bool]) -> None:
    assert holds({"preset": "demo", "settings": {"target_params": 0.1}}, **changes) == expected


def test_a_demo_without_all_its_models_fails() -> None:
    assert [v.holds for v in verdicts({"preset": "demo"}, {"dense": DENSE})] == [False]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, []),
        ({"target_params": 0.32}, [True]),
        ({"target_params": 0.31}, [False]),
        ({"target_params": 320, "target_macs": 298}, [True, False]),
    ],
)
def test_size_targets(settings: dict[str, float], expected: list[bool]) -> None:
    assert holds({"preset": "lm", "settings": settings}) == expected


def test_a_metric_of_the_recipe_that_is_no_number_fails() -> None:
    config = {"metrics": {"f1": "higher", "test_f1": "higher"}, "settings": {}}
    assert holds(config, f1=math.nan) == [False]
    assert holds(config, f1=70.0, test_f1=None) == []  # None: there is no test set
