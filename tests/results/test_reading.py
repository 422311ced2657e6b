"""Table 4: what is more is better there."""

import pytest

from tools.results import read
from tools.results.page import readme_tables, results_page
from tools.results.read import Results
from tools.results.reading import READING, judged


def result(seed=0, **models):
    summaries = {
        kind: {
            "em": em,
            "f1": f1,
            "weights": weights,
            "neurons": dict(zip("abcdef", (26, 33, 36, 36, 33, 15), strict=True)),
            "epochs": 10,
            "seconds": 600.0,
        }
        for kind, (em, f1, weights) in models.items()
    }
    environment = {"processor": "a processor"}
    return {"seed": seed, "models": summaries, "curves": {}, "environment": environment}


ROWS = {(row.name, row.kind): row for row in READING}
PAPER = ROWS["squad-paper", "small"]


@pytest.mark.parametrize(
    ("small", "control", "verdict"),
    [
        (
            (66.5, 76.5, 950_000),
            (64.0, 74.0, 950_000),
            "F1 0.81 better than the paper; F1 2.50 better than its control; "
            "reached what was asked",
        ),
        (
            (65.5, 75.5, 970_000),
            (66.0, 76.0, 970_000),
            "**F1 0.19 worse than the paper**; **F1 0.50 worse than its control**; "
            "**missed: EM 65.50, at least 66.00 was asked**; "
            "**missed: F1 75.50, at least 76.00 was asked**; "
            "**missed: 970,000 weights, at most 0.96M was asked**",
        ),
    ],
)
def test_more_is_better(small, control, verdict):
    results = Results({"squad-paper": result(small=small, control=control)})
    assert str(judged(PAPER, results)) == verdict
    assert ("BiDAF, neuron selection: F1" in results_page(results)) == (small[0] < 66)


def test_seeds_are_put_together_and_rows_that_were_not_run_are_listed():
    runs = {
        "squad-dense": result(dense=(67.0, 77.0, 2_657_535)),
        "squad-dense-seed1": result(1, dense=(68.0, 78.0, 2_657_535)),
    }
    page = results_page(Results(runs))
    assert "| 67.50 ± 0.71, 77.50 ± 0.71 | 26-33-36-36-33-15 | 2.66M |" in page
    assert "| BiDAF, ISS (group lasso) | 65.36, 75.78 | 20-33-40-38-31-16 | 0.95M | - |" in page


def test_presets_and_stored_models_say_em_and_f1():
    run = result(small=(66.5, 76.54, 950_000))
    assert read.expected(run) == "EM 66.50, F1 76.54, 0.95M weights"
    run["stored"] = {"precision": "int8", "bytes": 2**20, **run["models"]["small"]}
    assert "| int8 | 1.00 MiB | 0.95M | EM 66.50, F1 76.54 |" in results_page(
        Results({"squad-paper": run})
    )


def test_the_readme_has_the_rows_that_were_run():
    results = Results({"squad-dense": result(dense=(67.5, 77.5, 2_657_535))})
    assert readme_tables(results).splitlines()[-1] == (
        "| BiDAF, dense | 67.98, 77.85 | 2.69M | 67.50, 77.50 | 2.66M |"
    )
    assert "SQuAD" not in readme_tables(Results({}))
