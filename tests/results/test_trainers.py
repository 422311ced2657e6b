"""Tables about trainers: every figure is from the file of its program."""

from tools.results.trainers import TABLES, forecaster, latency, scaling, sizes, table

ENVIRONMENT = {"processor": "Zuse Z3", "cores": 1, "torch": "2.13"}
ABOUT = {"command": "python -m x", "environment": ENVIRONMENT}


def test_tables_show_what_was_measured():
    model = {"params": 1234, "error_ppm": [0.5, 0.7], "mean_error_ppm": 0.6, "milliseconds": 0.25}
    text = forecaster({"models": {"dense": model}, "times_are_noisy": True, **ABOUT})
    assert "| dense | 1,234 | 0.600 (0.500, 0.700) | 0.25 |" in text
    assert "`python -m x`, Zuse Z3, 1 cores, torch 2.13. Other programs ran" in text

    row = {"milliseconds_per_step": 12.34, "efficiency": 0.876}
    text = scaling({"processes": {"2": row}, "load": 3.0, **ABOUT})
    assert "| 2 | 12.3 | 0.88 |" in text and "3 other processes wanted a core" in text

    one = {"small_ms": 2.04, "over_asked": 1.02, "over_asked_without_drift": 0.99}
    found = {"models": {"net": {"asked_ms": 2.0, "rounds": [one]}}, "settings": {"cpu_time": True}}
    text = latency({**found, **ABOUT})
    assert "| net | 2.000 | 2.040 | +2.0 % | -1.0 % |" in text and "the calling thread" in text

    scores = {"params": 50, "valid_perplexity": 40.0, "test_perplexity": 39.0}
    worse = {"valid_perplexity": 0.005, "test_perplexity": -0.01}
    row = {"steps": 8000, "size": "0.5", "one_run": scores, "own_run": scores, "worse": worse}
    text = sizes({"models": [row], **ABOUT})
    assert "| 8,000 | 0.5 | 50 | 40.00 | 40.00 | 39.00 | 39.00 | +0.5 % | -1.0 % |" in text


def test_what_was_not_measured_is_left_out(tmp_path):
    assert {table(tmp_path, name) for name in TABLES} == {""}
