import json

import pytest
import torch

from thinrnn.lab import driver, train
from thinrnn.lab.recipes.language_model.load import load_model
from thinrnn.lab.recipes.language_model.recipe import RECIPE
from thinrnn.lab.run import DivergedError, InputError, StorageError
from thinrnn.lab.run import checkpoint as checkpoint_module
from thinrnn.lab.run.metrics import read_metrics
from thinrnn.lab.run.progress import Silent


def run(settings, folder):
    return driver.start(RECIPE, settings, folder, preset=None, progress=Silent())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cell": "gru", "hidden": (9, 12), "level": "char"},
        {"cell": "rnn", "hidden": (12,), "target_params": None, "target_macs": 0.6},
        {"tied": True, "embedding": 12, "hidden": (14, 10, 12), "target_params": None, "l0": 1e-4},
        {"optimizer": "nt-asgd", "lr": 1.0, "average_from": 2, "schedule": "constant"},
        {"optimizer": "sgd", "lr": 1.0, "schedule": "constant", "shrink": False},
        {"score": "random"},
        {"score": "magnitude", "gate": "arm"},
        {
            **{"optimizer": "nt-asgd", "gate_optimizer": "weights", "average_from": 1},
            **{"lr": 1.0, "schedule": "constant", "target_params": None, "l0": 1e-3},
        },
        {"target_params": None, "l0": {"rnn.weight_ih_l0": 1e-3, "rnn.weight_hh_*": 1e-4}},
    ],
)
def test_a_run_leaves_everything_that_was_promised(tiny, tmp_path, changes):
    settings = tiny(**changes)
    summaries = run(settings, tmp_path / "run").summaries()
    assert list(summaries) == ["dense", "small", "control"]
    for summary in summaries.values():
        assert 1 < summary["valid_perplexity"] < 100 and 1 < summary["test_perplexity"] < 100
        assert summary["milliseconds"] > 0 and summary["epochs"] == 3
        assert 0 < summary["weights"] < summary["params"] == summary["bytes"] // 4
    dense, small, control = summaries.values()
    assert small["difference"] < 1e-4
    for name in ("params", "weights", "macs"):
        assert small[name] == control[name]
    for target, name in (("target_params", "params"), ("target_macs", "macs")):
        if getattr(settings, target) is not None:
            goal = getattr(settings, target) * dense[name]
            assert small[name] <= goal

    epochs = [e for e in read_metrics(tmp_path / "run/metrics.jsonl") if e["event"] == "epoch"]
    assert [(e["phase"], e["epoch"]) for e in epochs] == [
        (phase, epoch) for phase in ("dense", "gated", "control") for epoch in (1, 2, 3)
    ]
    last = epochs[5]
    assert last["kept"] == small["neurons"] and last["params"] == small["params"]
    assert all(len(last["values"][name]) == size for name, size in last["sizes"].items())
    assert all(sum(v > 0 for v in last["values"][n]) == k for n, k in last["kept"].items())

    matrices = json.loads((tmp_path / "run/pattern.json").read_text())["matrices"]
    assert {m["name"] for m in matrices} >= {"embedding"}
    left = sum(
        len(m["kept_rows"] or range(m["rows"])) * len(m["kept_columns"] or range(m["columns"]))
        for m in matrices
        if not (settings.tied and m["name"] == "decoder")
    )
    assert left == small["weights"]
    assert (tmp_path / "run/report.html").stat().st_size > 1000


def test_the_saved_models_score_as_in_the_run(tiny, tmp_path):
    from thinrnn.lab.recipes.language_model.load import score_model

    finished = run(tiny(), tmp_path / "run")
    for kind, folder in (("dense", "dense"), ("small", "model"), ("control", "control")):
        path = tmp_path / "run" / folder
        measured = score_model(path, {}, config=finished.config, progress=Silent())
        summary = finished.summary(kind)
        for name in ("valid_perplexity", "test_perplexity"):
            assert measured[name] == pytest.approx(summary[name], rel=1e-5)
        assert measured["weights"] == summary["weights"]
    assert not load_model(tmp_path / "run/model").model.training


def test_only_the_chosen_phases_are_trained(tiny, tmp_path):
    finished = run(tiny(phases=("dense",), target_params=None), tmp_path / "run")
    assert list(finished.summaries()) == ["dense"]


def test_early_stopping_ends_a_phase_and_keeps_the_best_epoch(tiny, tmp_path):
    settings = tiny(phases=("dense",), epochs=30, lr=0.3, patience=2)
    summary = run(settings, tmp_path / "run").summary("dense")
    losses = [
        e["valid_perplexity"]
        for e in read_metrics(tmp_path / "run/metrics.jsonl")
        if e["event"] == "epoch"
    ]
    assert len(losses) < 30 and summary["epochs"] == len(losses)
    assert losses.index(min(losses)) == len(losses) - 3
    assert summary["valid_perplexity"] == pytest.approx(min(losses))


class Lines(Silent):
    """Progress that keeps its lines."""

    def __init__(self):
        self.lines = []

    def line(self, text):
        self.lines.append(text)


@pytest.mark.parametrize("lr", [1e-9, 0.01])
def test_a_model_that_does_not_learn_is_named_once_with_what_to_try(tiny, tmp_path, lr):
    progress = Lines()
    settings = tiny(lr=lr, phases=("dense",), dropout=0.0, epochs=8)
    finished = driver.start(RECIPE, settings, tmp_path / "run", preset=None, progress=progress)
    warned = [line for line in progress.lines if "is not learning" in line]
    unigram = finished.config["text"]["unigram_perplexity"]
    if lr == 1e-9:
        assert len(warned) == 1 and "--set lr=5e-10" in warned[0]
        assert f"{unigram:.2f}" in warned[0]
    else:
        assert finished.summary("dense")["valid_perplexity"] < unigram
    epochs = [line for line in progress.lines if " epoch " in line]
    assert len(epochs) == 8 and all(line.endswith(" left") for line in epochs)


def test_a_loss_that_is_not_a_number_stops_the_run_and_a_lower_rate_saves_it(tiny, tmp_path):
    folder = tmp_path / "run"
    settings = tiny(phases=("dense",), optimizer="sgd", lr=1e38, clip=0.0, checkpoint_steps=0)
    with pytest.raises(DivergedError) as caught:
        run(settings, folder)
    message = str(caught.value)
    assert "no longer a number" in message and "checkpoint" in message
    assert f"thinrnn train --resume {folder} --set lr=5e+37" in message
    finished = driver.resume(folder, ["lr=0.5", "clip=0.25"], progress=Silent())
    assert finished.summary("dense")["valid_perplexity"] < 100
    assert json.loads((folder / "config.json").read_text())["settings"]["lr"] == 0.5


def test_a_disk_that_fills_up_loses_nothing(tiny, tmp_path, monkeypatch):
    whole = run(tiny(), tmp_path / "whole")
    real, calls = checkpoint_module.write_synced, []

    def fills_up(path, data):
        calls.append(path)
        if len(calls) > 16:
            path.write_bytes(data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        real(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "write_synced", fills_up)
        with pytest.raises(StorageError, match=r"the disk is full; free some space"):
            run(tiny(), tmp_path / "run")
    assert len(list((tmp_path / "run/checkpoints").iterdir())) == 2
    driver.resume(tmp_path / "run", [], progress=Silent())
    for name in ("dense", "model", "control"):
        file = f"{name}/model.safetensors"
        assert (tmp_path / "run" / file).read_bytes() == (whole.path / file).read_bytes()


def test_a_run_is_not_resumed_on_another_text_or_with_another_model(tiny, texts, tmp_path):
    mine = tmp_path / "train.txt"
    mine.write_text((texts / "train.txt").read_text())
    folder = tmp_path / "run"
    run(tiny(train=str(mine), phases=("dense",)), folder)
    with pytest.raises(InputError, match="'hidden=3' cannot be changed in a run that has begun"):
        driver.resume(folder, ["hidden=3"], progress=Silent())
    mine.write_text(mine.read_text() + "w1 w2\n")
    with pytest.raises(InputError, match=r"the data of .* has changed since the run began"):
        driver.resume(folder, [], progress=Silent())


def test_bad_settings_leave_no_folder_behind(tiny, tmp_path):
    with pytest.raises(InputError, match=r"too few for batch=5000"):
        run(tiny(batch=5000), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_params": 100}, r"target_params=100 cannot be met: .* still has"),
        ({"target_params": None, "target_macs": 1e-3}, "target_macs=0.001 cannot be met"),
        ({"target_macs": 5}, "target_macs=5 cannot be met"),
    ],
)
def test_a_target_out_of_reach_is_refused_before_anything_is_trained(
    tiny, tmp_path, monkeypatch, changes, message
):
    monkeypatch.setattr(train.Trainer, "train", lambda *_: pytest.fail("a phase was trained"))
    with pytest.raises(InputError, match=message):
        run(tiny(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tied": True}, "tied=true needs the last layer as wide as the embedding"),
        ({"hidden": ()}, "hidden is empty"),
        ({"l0": 1e-7}, "exactly one of target, l0 and lasso"),
        ({"target_params": None}, "exactly one of target, l0 and lasso"),
        ({"lasso": 1e-4}, "exactly one of target, l0 and lasso"),
        ({"lasso": 1e-4, "target_params": None, "shrink": False}, "leave shrink=true"),
        ({"phases": ("gated", "dense")}, "in this order"),
        ({"device": "tpu"}, "device is 'tpu', but must be 'auto', 'cpu' or 'cuda'"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(tiny, changes, message):
    with pytest.raises(InputError, match=message):
        tiny(**changes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_reported(tiny, tmp_path):
    with pytest.raises(InputError, match="torch finds no GPU here: use --set device=cpu"):
        run(tiny(device="cuda"), tmp_path / "run")


@pytest.mark.filterwarnings("ignore:all .* are closed")
@pytest.mark.parametrize("shrink", [True, False])
def test_a_group_whose_gates_all_close_keeps_a_neuron_and_the_control_has_it_too(
    tiny, tmp_path, shrink
):
    settings = tiny(
        target_params=None,
        l0=1e-9,
        gate_mean=-9.0,
        shrink=shrink,
        epochs=1,
        phases=("gated", "control"),
    )
    finished = driver.start(RECIPE, settings, tmp_path / "run", preset=None, progress=Silent())
    small, control = (finished.summary(kind) for kind in ("small", "control"))
    assert set(small["neurons"].values()) == {1}
    assert small["params"] == control["params"]


def test_epochs_may_be_validated_in_more_streams_than_the_final_models(tiny, tmp_path):
    """More streams begin with an empty state more often; final figures are those of eval_batch."""
    found = {}
    for valid_batch in (0, 5):
        settings = tiny(phases=("dense",), valid_batch=valid_batch, eval_batch=1, epochs=1)
        finished = run(settings, tmp_path / str(valid_batch))
        (epoch,) = (
            e for e in read_metrics(finished.path / "metrics.jsonl") if e["event"] == "epoch"
        )
        found[valid_batch] = (
            epoch["valid_perplexity"],
            finished.summary("dense")["valid_perplexity"],
        )
    assert found[0][0] == pytest.approx(found[0][1]) == pytest.approx(found[5][1])
    assert found[5][0] != pytest.approx(found[5][1], rel=1e-6)
