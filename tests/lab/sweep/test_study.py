"""The study: enough trials and no more, none lost with its process, one sweep in one study."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna", reason="needs the extra sweep")

from optuna.study import Study
from optuna.trial import TrialState

from thinrnn.lab.run.errors import InputError
from thinrnn.lab.sweep import study as module
from thinrnn.lab.sweep.report import write_sweep_report
from thinrnn.lab.sweep.study import (
    About,
    Lookout,
    finished,
    next_trial,
    open_study,
    requeue,
    trials_of,
    worker_name,
)

SPACE = {"lr": {"low": 0.1, "high": 1.0}}
ABOUT = About("lm", {"epochs": 3}, SPACE, "abc", "valid_perplexity", "lower", "params", "small")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return open_study(ABOUT, tmp_path, None, "test")


def running(study: Study, worker: str, **attributes: Any) -> Any:
    trial = study.ask()
    trial.suggest_float("lr", 0.1, 1.0)
    for name, value in {"worker": worker, **attributes}.items():
        trial.set_user_attr(name, value)
    return study.get_trials(deepcopy=False)[trial.number]


def test_a_trial_whose_process_is_gone_is_done_again(study: Study, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = worker_name().rpartition(":")[0]
    lost = running(study, f"{here}:{ended.pid}", run="0000")
    running(study, f"{here}:{os.getpid()}")
    lookout = Lookout()
    assert [trial.number for trial in lookout.lost(study)] == [0]
    assert requeue(study, lost, is_lost=True)
    assert not requeue(study, lost, is_lost=True)  # a second one does not come of it
    assert [trial.number for trial in trials_of(study)] == [1, 2]
    other = open_study(ABOUT, tmp_path, None, "test")  # as another process opens it
    again = next_trial(other, 2)
    assert again is not None and again.user_attrs == {"tries": 2, "run": "0000"}
    assert again.suggest_float("lr", 0.1, 1.0) == lost.params["lr"]


def test_silence_is_a_sign_too(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    running(study, "elsewhere:1")
    trial = study.ask()
    lookout = Lookout()
    assert lookout.lost(study) == []
    now = module.SILENCE
    trial.set_user_attr("beat", 1)
    assert lookout.lost(study) == []
    now += 1
    assert [trial.number for trial in lookout.lost(study)] == [0]


def test_there_are_no_more_trials_than_asked_for(study: Study) -> None:
    for _ in range(2):
        trial = next_trial(study, 2)
        assert trial is not None
        study.tell(trial, [1.0, 2.0])
    assert next_trial(study, 2) is None
    failed = next_trial(study, 3)
    assert failed is not None
    failed.set_user_attr("error", "it diverged")
    study.tell(failed, state=TrialState.FAIL)
    assert next_trial(study, 3) is None
    assert len(finished(study)) == 3


def test_a_study_belongs_to_one_sweep(study: Study, tmp_path: Path) -> None:
    other = dataclasses.replace(ABOUT, space={"lr": {"low": 0.2, "high": 1.0}})
    with pytest.raises(InputError, match="a sweep with another space"):
        open_study(other, tmp_path, None, "test")
    with pytest.raises(InputError, match="cannot open the study in nonsense"):
        open_study(ABOUT, tmp_path, "nonsense", "test")
    database = f"sqlite:///{tmp_path}/trials.db"
    assert not open_study(other, tmp_path, database, "test").get_trials()


def test_the_report_shows_the_front(study: Study, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="draws the report")
    write_sweep_report(study, tmp_path)  # before a trial has ended
    for loss, params in ((50.0, 1000), (40.0, 2000), (60.0, 3000), (45.0, 1500), (70.0, 900)):
        trial = study.ask()
        trial.suggest_float("lr", 0.1, 1.0)
        trial.suggest_categorical("shape", ["<wide>", "thin"])
        study.tell(trial, [loss, params])
    stopped = study.ask()
    stopped.suggest_float("lr", 0.1, 1.0)
    study.tell(stopped, state=TrialState.PRUNED)
    page = write_sweep_report(study, tmp_path).read_text()
    best = page.split("Best trials")[-1].split("</table>")[0]
    assert "60.00" not in best and all(f"{n}.00" in best for n in (40, 45, 50, 70))
    assert "What decides valid perplexity" in page and "stopped early" in page
    assert "<wide>" not in page
