"""Readers are pruned without training, on questions of the training set."""

import json

import torch

from benchmarks.trained_run import TrainedRun
from thinrnn.lab.recipes.squad.recipe import RECIPE
from thinrnn.lab.run.progress import Silent


def test_calls_hold_questions_of_the_training_set(finished, data):
    model, plan, calls = RECIPE.calibrate(
        finished.path / "dense", data, config=None, calls=4, progress=Silent()
    )
    assert 1 < len(calls) <= 4 and {"modelling1.fwd.l0", "characters"} <= {g.name for g in plan}
    with torch.no_grad():
        for call in calls:
            assert len(call[0]) <= 10 and len(model(*call)) == 2


def test_a_reader_is_pruned_and_still_answers(finished, data, tmp_path, call):
    out = tmp_path / "small"
    code, printed, err = call(
        *("prune", finished.path, "--params", 0.6, "--calls", 4, "--out", out, "--json")
    )
    assert code == 0, err
    result = json.loads(printed)
    assert result["after"]["params"] <= 0.6 * result["before"]["params"]
    assert result["report"]["difference"] < 1e-4
    code, printed, err = call("eval", out, "--data", data, "--json")
    assert code == 0, err
    assert json.loads(printed)["f1"] == result["after"]["f1"]


def test_benchmarks_measure_and_prune_the_reader_of_a_run(finished, known_plan):
    run = TrainedRun(finished.path, calls=4, changes=[])
    assert run.measure(run.model) == finished.summary("dense")["f1"]
    small = run.calibration.prune(macs=0.9)
    assert run.macs(small) <= 0.9 * run.full
    assert 0 <= run.measure(run.train_(small, 2)) <= 100
