"""Readers are pruned without training, on questions of the training set."""

import json
import sys

import pytest
import torch

from benchmarks import gate_start, one_shot
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
    assert 0 <= run.measure(run.train_(small, 2, 0.1)) <= 100


@pytest.mark.extended
@pytest.mark.parametrize(
    ("program", "options"),
    [
        (one_shot, ["--macs", 0.9, 0.8, 0.001, "--gate-steps", 20, "--gate-rates", 0.2]),
        (gate_start, ["--macs", 0.9, "--gate-steps", 10, "--seeds", 2]),
    ],
)
@pytest.mark.filterwarnings("ignore:Target closes")
def test_benchmarks_run_on_a_reader(program, options, finished, known_plan, monkeypatch, tmp_path):
    out = tmp_path / "out.json"
    given = [finished.path, "--set", "select=recurrent", "--steps", 2, "--calls", 4, *options]
    monkeypatch.setattr(sys, "argv", [program.__name__, *map(str, given), "--out", str(out)])
    program.main()
    record = json.loads(out.read_text())
    assert 0.001 not in record["settings"]["macs"]
    rows = record["cells"] if program is gate_start else record["one_shot"] + record["gates"]
    assert all(0 <= row["pruned"] <= 100 and 0 <= row["trained"] <= 100 for row in rows)
