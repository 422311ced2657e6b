"""Gradients of gates: every figure is from the file of the benchmark."""

from tools.results.gate_variance import table


def test_estimators_are_compared_with_hard_concrete_at_each_probability():
    def figures(mean, variance):
        return {"mean": mean, "variance": variance}

    found = {"0.5": {"hard concrete": figures(0.2, 0.5), "DisARM": figures(0.1, 2.0)}}
    _, _, relaxed, unbiased = table({"gradients": found}).splitlines()
    assert relaxed == "| 0.5 | hard concrete | 0.2 | 0.5 | 1x |"
    assert unbiased == "| 0.5 | DisARM | 0.1 | 2 | 4x |"
