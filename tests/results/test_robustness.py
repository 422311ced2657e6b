"""The grid on the results page is what the file says."""

import pytest

from thinrnn.lab.recipes.language_model.choose import usual_lr
from tools.results import robustness


@pytest.fixture
def found():
    def model(ratio, step):
        return {"ratio": ratio, "step": {"ratio": step}, "shape": [64, 64, 40]}

    small = {"ratio": 1.2, "shape": [64, 40, 20]}
    models = {"dense": model(1.1, 0.5), "small": small, "control": model(0.9, 1.25)}
    shape = {"cell": "gru", "width": 64, "tied": False, "seed": 1, "epochs": 3, "tokens": 5000}
    shape["settings"] = {"lr": usual_lr("adam", "gru", 64), "embedding": 64, "hidden": [64, 64]}
    return {"runs": [{"device": "cpu", "corpus": "novel", **shape, "models": models}]}


def test_ratios_above_one_stand_out_but_for_narrow_models(found):
    row = robustness.table(found).splitlines()[-1]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:4] == ["cpu", "novel", "GRU 64, untied, seed 1", "3 x 5,000"]
    assert cells[4:] == ["**1.10**", "*1.20*", "0.90", "2.00", "0.80"]


def test_runs_at_another_rate_are_marked(found):
    found["runs"][0]["settings"]["lr"] *= 3
    assert "seed 1* |" in robustness.table(found)


def test_runs_with_other_first_weights_are_marked(found):
    assert not robustness.any_began_otherwise(found)
    found["runs"][0]["settings"]["embedding"] = 32
    assert robustness.any_began_otherwise(found)


def test_models_above_one_and_slow_ones_are_counted(found):
    assert robustness.above(found) == (2, 1, 3) and robustness.slower(found) == (1, 2)


def test_without_a_file_nothing_is_shown(tmp_path):
    assert robustness.read(tmp_path) is None
