import json
import os
import shutil
import signal

import pytest
import torch

from thinrnn.lab import driver
from thinrnn.lab.recipes import presets
from thinrnn.lab.recipes.optimizer import WeightsAndGates
from thinrnn.lab.recipes.phase import Phase
from thinrnn.lab.recipes.squad.load import load_model, read_vocabulary, save_model, score_model
from thinrnn.lab.recipes.squad.model import BiDAF, weights_of
from thinrnn.lab.recipes.squad.recipe import RECIPE
from thinrnn.lab.recipes.squad.settings import SquadSettings
from thinrnn.lab.run import InputError, InterruptedRunError
from thinrnn.lab.run.metrics import read_metrics
from thinrnn.lab.run.progress import Silent

FOLDERS = {"dense": "dense", "small": "model", "control": "control"}


def test_a_run_leaves_everything_that_was_promised(finished):
    summaries = finished.summaries()
    assert list(summaries) == ["dense", "small", "control"]
    dense, small, control = summaries.values()
    for summary in summaries.values():
        assert 0 <= summary["em"] <= summary["f1"] <= 100
        assert summary["training_steps"] == 9 and summary["milliseconds"] > 0
        assert summary["weights_without_tables"] < summary["weights"] < summary["params"]
    assert small["params"] <= 0.85 * dense["params"]
    assert small["difference"] < 1e-4
    for name in ("params", "weights", "macs", "neurons"):
        assert small[name] == control[name]
    events = list(read_metrics(finished.path / "metrics.jsonl"))
    rounds = [e for e in events if e["event"] == "epoch"]
    assert [e["phase"] for e in rounds] == ["dense"] * 3 + ["gated"] * 3 + ["control"] * 3
    assert rounds[5]["kept"] == small["neurons"] and rounds[5]["em"] == small["em"]
    names = {
        m["name"] for m in json.loads((finished.path / "pattern.json").read_text())["matrices"]
    }
    assert {"modelling1.fwd.weight_ih_l0", "start", "end"} <= names
    assert (finished.path / "report.html").stat().st_size > 1000


def test_saved_models_score_as_in_the_run_and_hold_no_glove(finished, data):
    for kind, folder in FOLDERS.items():
        path = finished.path / folder
        measured = score_model(path, {"data": data}, progress=Silent())
        summary = finished.summary(kind)
        for name in ("em", "f1", "weights"):
            assert measured[name] == pytest.approx(summary[name])
        kept = {f.name for f in path.iterdir()}
        assert kept <= {"model.safetensors", "thinrnn.json", "vocabulary.json", "recipe.json"}
        model = load_model(path).model
        assert "glove" not in model.state_dict() and not model.training


def stop_at_(patch, step, phase="gated"):
    """Ask a phase to stop after a step, as a shell does."""
    take_step = Phase.take_step

    def taken(training):
        take_step(training)
        if training.name == phase and training.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    patch.setattr(Phase, "take_step", taken)


@pytest.mark.parametrize("step", [4, 6])
def test_a_stopped_run_ends_where_an_uninterrupted_one_ends(
    tiny, known_plan, finished, tmp_path, step
):
    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        stop_at_(patch, step)
        with pytest.raises(InterruptedRunError, match=f"stopped at step {step} of 9 of gated"):
            driver.start(RECIPE, tiny(phases=("gated",)), folder, preset=None, progress=Silent())
    driver.resume(folder, [], progress=Silent())
    ours = (folder / "model/model.safetensors").read_bytes()
    assert ours == (finished.path / "model/model.safetensors").read_bytes()
    same = [e for e in read_metrics(finished.path / "metrics.jsonl") if e["phase"] == "gated"]
    again = list(read_metrics(folder / "metrics.jsonl"))
    assert [{**e, "seconds": 0} for e in again] == [{**e, "seconds": 0} for e in same]


def test_a_control_has_the_shape_of_a_model_whose_encoder_is_pruned_too(tiny, known_plan, tmp_path):
    settings = tiny(select="recurrent", phases=("gated", "control"), target_params=0.8)
    whole = driver.start(RECIPE, settings, tmp_path / "whole", preset=None, progress=Silent())
    small, control = whole.summary("small"), whole.summary("control")
    assert small["difference"] < 1e-4
    for name in ("params", "weights", "macs", "neurons"):
        assert small[name] == control[name]
    models = [load_model(whole.path / FOLDERS[kind]).model for kind in ("small", "control")]
    shapes = [{name: p.shape for name, p in model.named_parameters()} for model in models]
    assert shapes[0] == shapes[1]
    left = [small["neurons"][f"encoder.{direction}.l0"] for direction in ("fwd", "bwd")]
    assert sum(left) < 9 and shapes[0]["attention.product"] == (sum(left),)
    assert json.loads((whole.path / "control/recipe.json").read_text())["model"]["hidden"] == left

    folder = tmp_path / "stopped"
    with pytest.MonkeyPatch.context() as patch:
        stop_at_(patch, 4, "control")
        with pytest.raises(InterruptedRunError, match="stopped at step 4 of 9 of control"):
            driver.start(RECIPE, settings, folder, preset=None, progress=Silent())
    driver.resume(folder, [], progress=Silent())
    for kind in ("small", "control"):
        file = f"{FOLDERS[kind]}/model.safetensors"
        assert (folder / file).read_bytes() == (whole.path / file).read_bytes()


@pytest.mark.parametrize(("value", "pair"), [(7, (7, 7)), ("7", (7, 7)), ("6,5", (6, 5))])
def test_one_size_of_the_encoder_is_for_both_directions(value, pair):
    assert SquadSettings().replaced(hidden=value).hidden == pair


@pytest.mark.parametrize("hidden", [100, [100, 100]])
def test_folders_with_one_size_of_the_encoder_or_two_are_read(finished, tmp_path, hidden):
    folder = shutil.copytree(finished.path / "model", tmp_path / "model")
    recipe = json.loads((folder / "recipe.json").read_text())
    model = BiDAF(**{**recipe["model"], "hidden": hidden})
    save_model(model, folder, {**recipe["model"], "hidden": hidden}, read_vocabulary(folder))
    (folder / "thinrnn.json").unlink()
    encoder = load_model(folder).model.encoder
    assert encoder.fwd.hidden_size == encoder.bwd.hidden_size == 100


@pytest.mark.parametrize(
    "changes",
    [
        {"target_params": None, "l0": 1e-3, "optimizer": "adadelta", "lr": 0.5},
        {"target_params": None, "lasso": 1e-3, "lasso_zero_at_end": 0.02, "clip": 1.0},
    ],
)
def test_other_penalties_and_rules_train_to_the_end(tiny, known_plan, tmp_path, changes):
    run = driver.start(
        RECIPE, tiny(phases=("gated",), **changes), tmp_path / "run", preset=None, progress=Silent()
    )
    small = run.summary("small")
    assert small["difference"] < 1e-4 and set(small["neurons"]) and small["em"] >= 0


def test_a_run_may_start_from_a_dense_model(tiny, known_plan, finished, tmp_path):
    still = {"lr": 1e-9, "gate_lr": 1e-9, "target_params": None, "l0": 1e-9, "gate_mean": 5.0}
    settings = tiny(phases=("gated",), start_from=str(finished.path / "dense"), **still)
    small = driver.start(
        RECIPE, settings, tmp_path / "run", preset=None, progress=Silent()
    ).summary("small")
    dense = finished.summary("dense")
    assert small["em"] == dense["em"] and small["f1"] == pytest.approx(dense["f1"])
    assert small["valid_loss"] == pytest.approx(dense["valid_loss"], rel=1e-4)


def test_data_that_changes_under_a_run_is_noticed(finished, make_data, some_stories):
    other = make_data(some_stories)
    with pytest.raises(InputError, match="has changed since the run began"):
        driver.resume(finished.path, [f"data={other}"], progress=Silent())
    with pytest.raises(InputError, match="'hidden=3' cannot be changed"):
        driver.resume(finished.path, ["hidden=3"], progress=Silent())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"six": (1, 2)}, "six has 2 sizes"),
        ({"l0": 1.0}, "exactly one of target, l0 and lasso"),
        ({"phases": ("control",)}, "a control needs a gated run"),
        ({"select": "all"}, "select=six or recurrent, not all: leave the phase control out"),
        ({"hidden": (1, 2, 3)}, "hidden has 3 sizes"),
        ({"most_context": 1}, "0 questions are left to train on"),
        ({"data": ""}, "give --data DIR"),
    ],
)
def test_settings_that_cannot_be_are_refused(tiny, tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        driver.start(RECIPE, tiny(**changes), tmp_path / "run", preset=None, progress=Silent())
    assert not (tmp_path / "run").exists()


def test_presets_are_there():
    names = {"squad-dense", "squad-iss", "squad-paper", "squad-scratch", "squad-thin", "squad-fast"}
    assert names <= set(presets())
    six = presets()["squad-scratch"].settings().six
    model = BiDAF(rows=856, characters=154, six=six)
    assert weights_of(model)["weights"] < 960_000


def test_adadelta_is_torchs_and_averages_are_exponential():
    torch.manual_seed(0)
    ours = torch.nn.Linear(3, 2)
    torchs = torch.nn.Linear(3, 2)
    torchs.load_state_dict(ours.state_dict())
    mine = WeightsAndGates(
        list(ours.parameters()), [], rule="adadelta", lr=0.5, gate_lr=1.0, average_decay=0.75
    )
    reference = torch.optim.Adadelta(torchs.parameters(), lr=0.5, rho=0.95, eps=1e-8)
    average = ours.weight.detach().clone()
    for _ in range(5):
        x = torch.randn(4, 3)
        for model, optimizer in ((ours, mine), (torchs, reference)):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
        torch.testing.assert_close(ours.weight, torchs.weight, rtol=1e-4, atol=1e-6)
        average = 0.75 * average + 0.25 * ours.weight.detach()
    with mine.averaged():
        torch.testing.assert_close(ours.weight, average)
    torch.testing.assert_close(ours.weight, torchs.weight, rtol=1e-4, atol=1e-6)
