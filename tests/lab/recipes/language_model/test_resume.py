"""Runs that are killed at any moment end where the undisturbed run ends, bit for bit."""

import json
import multiprocessing
import os
import random
import re
import signal
import time

import pytest
import torch

from thinrnn.lab import driver, train
from thinrnn.lab.recipes.language_model.recipe import RECIPE
from thinrnn.lab.recipes.phase import Phase
from thinrnn.lab.run import InputError
from thinrnn.lab.run.metrics import read_metrics
from thinrnn.lab.run.progress import Plain, Silent

KILLS = 30

# Children are forked from one process that has imported torch, so that each starts at once.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    [type(RECIPE).__module__, train.__name__, "thinrnn.lab.cli.app", "thinrnn.lab.report"]
)


def start_or_resume(settings, folder, log=os.devnull):
    """What a child does: go on if there is something to go on with."""
    with open(log, "a") as out:
        torch.set_num_threads(1)
        if (folder / "config.json").exists():
            driver.resume(folder, [], progress=Plain(out))
        else:
            driver.start(RECIPE, settings, folder, preset=None, progress=Plain(out))


def spawn(*arguments):
    child = processes.Process(target=start_or_resume, args=arguments)
    child.start()
    return child


def result(folder):
    """What must not depend on kills: weights, metrics, summaries, all but the clock."""
    weights = {
        name: (folder / name / "model.safetensors").read_bytes()
        for name in ("dense", "model", "control")
    }
    events = [{**e, "seconds": 0} for e in read_metrics(folder / "metrics.jsonl")]
    summaries = {}
    for kind in ("dense", "small", "control"):
        summary = json.loads((folder / f"{kind}.json").read_text())
        timing = ("seconds", "milliseconds", "milliseconds_spread")
        summaries[kind] = {**summary, **dict.fromkeys(timing, 0)}
    return weights, events, summaries


def size(folder):
    """How much a run has written about its training."""
    file = folder / "metrics.jsonl"
    return file.stat().st_size if file.exists() else 0


def wait_for_training(child, folder, more):
    """Wait until a child has written so many bytes more about its training, or has ended."""
    wanted = size(folder) + more
    while child.exitcode is None and size(folder) < wanted:
        time.sleep(0.001)


@pytest.mark.extended
@pytest.mark.parametrize("optimizer", ["adam", "nt-asgd"])
def test_killed_at_random_moments_it_ends_in_the_same_weights(tiny, tmp_path, optimizer):
    lr = 0.01 if optimizer == "adam" else 1.0
    settings = tiny(
        optimizer=optimizer, lr=lr, average_from=1, checkpoint_steps=3, epochs=3, log_every=1
    )
    began = time.monotonic()
    child = spawn(settings, tmp_path / "whole")
    child.join()
    assert child.exitcode == 0
    lasts = time.monotonic() - began
    wanted = result(tmp_path / "whole")

    kills, runs, dice, log = 0, 0, random.Random(), tmp_path / "log"
    while kills < KILLS // 2:
        folder = tmp_path / f"run-{runs}"
        runs += 1
        while True:
            child = spawn(settings, folder, log)
            if kills >= KILLS // 2:
                child.join()
            elif dice.random() < 0.3:
                child.join(dice.uniform(0, lasts))
            else:
                wait_for_training(child, folder, dice.uniform(0, 0.3) * size(tmp_path / "whole"))
                child.join(dice.uniform(0, 0.03))
            if child.exitcode is not None:
                break
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            kills += 1
        assert child.exitcode == 0
        assert result(folder) == wanted
        assert not [p for p in folder.rglob(".*") if p.name != ".lock"]
    # most kills were in the middle of training, and not before or after it
    assert len(re.findall(r"going on with \w+ at epoch", log.read_text())) >= KILLS // 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_writes_a_checkpoint_and_names_the_command_to_resume(tiny, tmp_path, number):
    folder, settings = tmp_path / "run", tiny(epochs=500, checkpoint_steps=0)
    child = spawn(settings, folder)
    while (
        not (folder / "metrics.jsonl").exists()
        or b"step" not in (folder / "metrics.jsonl").read_bytes()
    ):
        assert child.exitcode is None
        time.sleep(0.01)
    os.kill(child.pid, number)
    child.join()
    assert child.exitcode == 1  # the error that the command line turns into one line
    names = [p.name for p in (folder / "checkpoints").iterdir()]
    assert sorted(names) == ["dense-000001", "dense-000002"]
    assert "stopped before its end" in (folder / "report.html").read_text()


def test_a_damaged_checkpoint_is_reported_and_the_run_ends_the_same(tiny, tmp_path, monkeypatch):
    settings = tiny(phases=("dense",))
    driver.start(RECIPE, settings, tmp_path / "whole", preset=None, progress=Silent())
    folder = tmp_path / "run"
    stop_after(monkeypatch, 9)
    with pytest.raises(KeyboardInterrupt):
        driver.start(RECIPE, settings, folder, preset=None, progress=Silent())
    monkeypatch.undo()
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    (newest / "tensors.safetensors").write_bytes(b"torn")
    log = tmp_path / "log"
    start_or_resume(settings, folder, log)
    printed = log.read_text().splitlines()
    assert f"{newest.name} is damaged" in printed[0] and "using the one before" in printed[0]
    assert printed[1].startswith("going on with dense at epoch 0.")
    file = "dense/model.safetensors"
    assert (folder / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_finished_phases_are_not_trained_again(tiny, tmp_path, monkeypatch):
    finished = driver.start(RECIPE, tiny(), tmp_path / "run", preset=None, progress=Silent())
    before = result(finished.path)
    stop_after(monkeypatch, 0)
    driver.resume(finished.path, [], progress=Silent())
    (finished.path / "control.json").unlink()
    with pytest.raises(KeyboardInterrupt):
        driver.resume(finished.path, [], progress=Silent())
    monkeypatch.undo()
    driver.resume(finished.path, [], progress=Silent())
    assert result(finished.path) == before


def test_an_unfinished_run_of_another_version_is_refused_and_a_finished_one_is_not(tiny, tmp_path):
    finished = driver.start(
        RECIPE, tiny(phases=("dense",)), tmp_path / "run", preset=None, progress=Silent()
    )
    config = finished.path / "config.json"
    old = json.loads(config.read_text())
    del old["format"], old["metrics"]
    old["settings"].pop("lasso_zero")  # newer than the run
    config.write_text(json.dumps(old))
    driver.resume(finished.path, [], progress=Silent())
    (finished.path / "dense.json").unlink()
    with pytest.raises(InputError, match=f"{finished.path} was begun by another version"):
        driver.resume(finished.path, [], progress=Silent())


def stop_after(monkeypatch, steps):
    """Let training break off without warning after so many steps."""

    real, taken = Phase.take_step, []

    def take_step(self):
        if len(taken) >= steps:
            raise KeyboardInterrupt
        taken.append(1)
        real(self)

    monkeypatch.setattr(Phase, "take_step", take_step)
