"""The verdicts on a run hold exactly where its figures reach what they should."""

import math
from typing import Any

import pytest

from thinrnn.lab.cli.summary import run_table
from thinrnn.lab.verdicts import control_failure, verdicts

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


def test_a_demo_of_one_phase_promises_nothing() -> None:
    config = {"preset": "demo", "settings": {"phases": ["dense"]}}
    assert verdicts(config, {"dense": DENSE}) == []


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


@pytest.mark.parametrize(
    ("dense", "small", "control", "unigram", "has_failed"),
    [
        (105.9, 114.3, 120.0, 690.0, False),
        (105.9, 114.3, 256.8, 690.0, True),  # far above the dense model
        (105.9, 250.0, 256.8, 690.0, False),  # but the shape can do no better
        (None, 114.3, 256.8, None, True),
        (500.0, 510.0, 687.0, 690.0, True),  # the loss of the unigram model
        (105.9, 114.3, 120.0, None, False),
        (105.9, 114.3, math.inf, 690.0, True),
    ],
)
def test_a_control_that_did_not_learn_is_no_comparison(
    dense: float | None, small: float, control: float, unigram: float | None, has_failed: bool
) -> None:
    perplexities = {"dense": dense, "small": small, "control": control}
    summaries = {
        kind: {"valid_perplexity": value, "neurons": {}, "weights": 1, "bytes": 1, "macs": 1}
        for kind, value in perplexities.items()
        if value is not None
    }
    config = {"text": {"unigram_perplexity": unigram}}
    assert bool(control_failure(config, summaries)) == has_failed
    failures = [verdict.text for verdict in verdicts(config, summaries) if not verdict.holds]
    assert any("control failed" in text for text in failures) == has_failed
    assert ("control failed" in run_table(config, summaries)) == has_failed


@pytest.mark.parametrize(("spread", "shown"), [(1.2, "4.00x"), (2.0, "too noisy")])
def test_noisy_times_have_no_speed_up(spread: float, shown: str) -> None:
    base = {"neurons": {}, "weights": 1, "bytes": 1, "macs": 1}
    dense = {**base, "milliseconds": 8.0, "milliseconds_spread": 1.1}
    small = {**base, "milliseconds": 2.0, "milliseconds_spread": spread}
    line = next(
        line
        for line in run_table({}, {"dense": dense, "small": small}).splitlines()
        if line.startswith("PyTorch speed-up")
    )
    assert line.endswith(shown)
