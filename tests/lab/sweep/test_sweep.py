"""thinrnn sweep: workers are killed and stopped, and nothing is lost; bad input is one line."""

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna", reason="needs the extra sweep")

from thinrnn.lab import driver, recipes
from thinrnn.lab.cli import main
from thinrnn.lab.recipes.settings import as_json, changed
from thinrnn.lab.run.checkpoint import Checkpoints
from thinrnn.lab.run.progress import Silent
from thinrnn.lab.sweep import worker
from thinrnn.lab.sweep.study import About, finished, next_trial

SETTINGS = {
    "minutes": "none",
    "phases": "gated",
    "hidden": "8,8",
    "embedding": "8",
    "epochs": "8",
    "batch": "8",
    "bptt": "10",
    "dropout": "0",
    "optimizer": "sgd",
    "device": "cpu",
    "threads": "1",
    "tensorboard": "false",
    "bench_seconds": "0",
    "checkpoint_steps": "3",
}
SPACE = "[lr]\nlow = 0.1\nhigh = 1.0\n[target_params]\nchoices = [0.4, 0.6]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a text and a space, from which the commands run."""
    draw = random.Random(0)
    for name, lines in (("train", 200), ("valid", 20)):
        words = ([f"w{draw.randrange(30)}" for _ in range(7)] for _ in range(lines))
        (tmp_path / f"{name}.txt").write_text("".join(" ".join(line) + "\n" for line in words))
    (tmp_path / "space.toml").write_text(SPACE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def arguments(*more: str) -> list[str]:
    texts = ["--train", "train.txt", "--valid", "valid.txt"]
    sets = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    return ["sweep", "lm", "--space", "space.toml", *texts, *sets, "--out", "sweep", *more]


def begun(folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "thinrnn.lab.cli", *arguments(*more)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def worker_in_training(folder: Path, process: subprocess.Popen[str]) -> int:
    """Return the process of a worker whose trial has some checkpoints behind it."""
    deadline = time.monotonic() + 400
    saved = Checkpoints(folder / "sweep" / "trials" / "0000" / "checkpoints")
    while not (there := saved.of("gated")) or int(there[-1].name.split("-")[-1]) < 3:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    journal = (folder / "sweep" / "study.journal").read_text().splitlines()
    told = [json.loads(line).get("user_attr", {}) for line in journal]
    return int(next(attr["worker"] for attr in told if "worker" in attr).rpartition(":")[2])


def assert_as_uninterrupted(folder: Path, trial: dict[str, Any]) -> None:
    """A trial ends with the numbers of a run with its settings that nobody has touched."""
    assert trial["run"] == "0000"
    files = {"train": folder / "train.txt", "valid": folder / "valid.txt"}
    settings = recipes.preset("lm").settings().replaced(**{k: str(v) for k, v in files.items()})
    settings = changed(settings, [f"{k}={v}" for k, v in (SETTINGS | trial["settings"]).items()])
    run = driver.start(
        recipes.recipe("language_model"), settings, folder / "alone", preset="lm", progress=Silent()
    )
    small = run.summary("small")
    assert small is not None
    assert small["valid_perplexity"] == trial["valid_perplexity"]
    assert small["params"] == trial["params"]


@pytest.mark.extended
def test_a_killed_worker_loses_nothing(folder: Path) -> None:
    process = begun(folder, "--trials", "2", "--json")
    os.kill(worker_in_training(folder, process), signal.SIGKILL)
    out, _ = process.communicate(timeout=400)
    assert process.returncode == 0, out
    assert "trial 0: its process is gone, another one goes on" in out
    found = json.loads(out[out.index("\n{") :])
    assert len(found["trials"]) == 2 and {t["end"] for t in found["trials"]} == {"finished"}
    assert_as_uninterrupted(folder, found["trials"][0])
    assert (folder / "sweep" / "report.html").exists()


@pytest.mark.extended
def test_a_sweep_that_was_stopped_goes_on(folder: Path) -> None:
    process = begun(folder, "--trials", "2", "--workers", "2")
    worker_in_training(folder, process)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=400)
    assert process.returncode == 130, out
    assert out.count("the same command goes on") == 1 and "Traceback" not in out
    process = begun(folder, "--trials", "3", "--workers", "2", "--json")
    out, _ = process.communicate(timeout=400)
    assert process.returncode == 0, out
    found = json.loads(out[out.index("\n{") :])
    assert len(found["trials"]) == 3 and {t["end"] for t in found["trials"]} == {"finished"}
    assert_as_uninterrupted(folder, next(t for t in found["trials"] if t["run"] == "0000"))


@pytest.mark.extended
def test_two_commands_share_a_database(folder: Path) -> None:
    """As on two machines: each has a folder of its own; the trials are in one database."""
    storage = f"sqlite:///{folder / 'study.db'}"
    more = ("--storage", storage, "--name", "both", "--trials", "4", "--cost", "milliseconds")
    first = begun(folder, *more, "--json", "--out", "one")
    second = begun(folder, *more, "--json", "--out", "two")
    runs = []
    for process, out in ((first, "one"), (second, "two")):
        text, _ = process.communicate(timeout=400)
        assert process.returncode == 0, text
        trials = json.loads(text[text.index("\n{") :])["trials"]
        assert [trial["end"] for trial in trials] == ["finished"] * 4
        assert all(trial["milliseconds"] > 0 for trial in trials)
        assert (folder / out / "report.html").exists()
        runs += [path.name for path in (folder / out / "trials").iterdir()]
    assert sorted(runs) == [trial["run"] for trial in trials]  # each trained once, here or there


def one_trial(folder: Path, **values: str) -> Any:
    """Train one trial in this process and return how it ended."""
    files = {name: str(folder / f"{name}.txt") for name in ("train", "valid")}
    settings = recipes.preset("lm").settings().replaced(**files)
    settings = changed(settings, [f"{k}={v}" for k, v in (SETTINGS | values).items()])
    space = {"lr": {"low": 0.1, "high": 1.0}}
    table = as_json(settings)
    about = About("lm", table, space, "", "valid_perplexity", "lower", "params", "small")
    job = worker.Job(about, folder / "sweep", None, "sweep", 1, 1)
    study = job.study()
    trial = next_trial(study, 1)
    assert trial is not None
    worker.run_trial(study, trial, job)
    (ended,) = finished(study)
    assert not (folder / "sweep" / "trials" / "0000" / "checkpoints").exists()
    return ended


def test_a_trial_that_falls_behind_is_stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "falls_behind", lambda epoch, *place: epoch == 2)
    ended = one_trial(folder, epochs="3")
    assert ended.state.name == "PRUNED"
    assert "epoch 2" in ended.user_attrs and "epoch 3" not in ended.user_attrs


def test_a_trial_that_cannot_be_says_why(folder: Path) -> None:
    ended = one_trial(folder, target_params="2")  # parameters
    assert ended.state.name == "FAIL"
    assert "cannot be met" in ended.user_attrs["error"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--space", "nothing.toml"], "nothing.toml"),
        (["--cost", "beauty"], "choose one of params"),
        (["--cost", "onnx_milliseconds"], "bench_seconds is 0"),
        (["--metric", "test_perplexity"], "choose one of valid_perplexity"),
        (["--set", "hiden=3"], "did you mean 'hidden'"),
        (["--storage", "nonsense"], "cannot open the study"),
        (["--valid", "no.txt"], "no.txt does not exist"),
    ],
)
def test_bad_input_is_one_line(
    folder: Path, more: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments(*more))
    said = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 2
    assert len(said) == 1 and reason in said[0]


def test_a_bad_space_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "space.toml").write_text("[learning_rate]\nlow = 1\nhigh = 2\n")
    with pytest.raises(SystemExit) as ended:
        main(arguments())
    said = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 2
    assert len(said) == 1 and "[learning_rate] of the space: there is no setting" in said[0]


def test_without_optuna(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "optuna" else find(name)
    )
    for name in [name for name in sys.modules if name.startswith("thinrnn.lab.sweep")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SystemExit) as ended:
        main(arguments())
    said = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 2
    assert len(said) == 1 and "pip install '.[sweep]'" in said[0]
