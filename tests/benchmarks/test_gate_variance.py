"""The benchmark of gate gradients runs, and its estimators differ as they should."""

import json
import math
import sys

import pytest
import torch

pytestmark = pytest.mark.extended


def test_all_estimators_are_measured(monkeypatch, tmp_path):
    from benchmarks import gate_variance

    out = tmp_path / "variance.json"
    sizes = ["--hidden=6", "--train=2", "--samples=30", "--steps=3", "--batch=2", "--open", "0.9"]
    monkeypatch.setattr(sys, "argv", ["gate_variance.py", *sizes, f"--out={out}"])
    gate_variance.main()
    record = json.loads(out.read_text())
    case = record["gradients"]["0.9"]
    assert list(case) == list(gate_variance.ESTIMATORS)
    assert all(math.isfinite(figures["variance"]) for figures in case.values())
    assert record["gates"] == 18  # embedding and two layers


@pytest.mark.parametrize("probability", [0.3, 0.9])
def test_gates_are_open_with_the_probability_that_is_given(probability):
    from benchmarks import gate_variance

    for estimator in gate_variance.ESTIMATORS.values():
        start = gate_variance.log_alpha_for(estimator, probability)
        found = estimator.open_probability(torch.tensor(start))
        assert float(found) == pytest.approx(probability, abs=1e-6)
