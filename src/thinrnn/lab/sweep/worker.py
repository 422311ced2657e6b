"""A worker of a sweep: trains one trial after the other."""

import contextlib
import signal
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import torch
from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from thinrnn.errors import ThinRNNError
from thinrnn.lab import driver, recipes
from thinrnn.lab.recipes.settings import TrainingSettings
from thinrnn.lab.run import InterruptedRunError, RunFolder
from thinrnn.lab.run.files import remove_folder
from thinrnn.lab.run.progress import Silent
from thinrnn.lab.sweep.median import Standing, falls_behind
from thinrnn.lab.sweep.space import parse_space, suggest
from thinrnn.lab.sweep.study import (
    MOST_TRIES,
    About,
    curve_of,
    next_trial,
    open_study,
    requeue,
    signs_of_life,
    worker_name,
)

TRIALS = "trials"  # the folder of the run folders
STOPPED = 130  # exit code of a worker that was asked to stop


@dataclass(frozen=True)
class Job:
    """What a worker has to do; it travels to another process."""

    about: About
    out: Path
    url: str | None
    name: str
    trials: int
    threads: int

    def study(self) -> Study:
        return open_study(self.about, self.out, self.url, self.name)

    def settings(self) -> TrainingSettings:
        return recipes.preset(self.about.preset).settings().replaced(**self.about.settings)


def threads_for(settings: TrainingSettings, workers: int) -> int:
    """Return how many threads each of so many workers has: their share of torch's."""
    return settings.threads or max(1, torch.get_num_threads() // workers)


def work(job: Job) -> None:
    """Train trials until there are enough."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # outside of training, like Ctrl-C
    warnings.simplefilter("ignore")  # those of many trials at once help nobody
    torch.set_num_threads(job.threads)
    study, trial = job.study(), None
    try:
        while (trial := next_trial(study, job.trials)) is not None:
            trial.set_user_attr("worker", worker_name())
            with signs_of_life(trial), contextlib.suppress(UpdateFinishedTrialError):
                run_trial(study, trial, job)  # which another process may have taken over
    except (KeyboardInterrupt, InterruptedRunError):
        if trial is not None:
            requeue(study, _frozen(study, trial), is_lost=False)
        raise SystemExit(STOPPED) from None


def run_trial(study: Study, trial: Trial, job: Job) -> None:
    """Train a trial, or go on with one that another worker began; tell the study the end."""
    about, settings = job.about, job.settings()
    changes = suggest(trial, parse_space(about.space, settings))
    folder = job.out / TRIALS / trial.user_attrs.get("run", f"{trial.number:04d}")
    trial.set_user_attr("run", folder.name)
    try:
        if trial.user_attrs.get("tries", 1) > MOST_TRIES:
            raise ThinRNNError(f"its process ended {MOST_TRIES} times")
        run = _trained(study, trial, job, settings.replaced(**changes), folder)
        summary = run.summary(about.kind) or {}
        for name in (about.metric, about.cost):
            if summary.get(name) is None:
                raise ThinRNNError(f"the run has no {name}")
        values = [summary[about.metric], summary[about.cost]]
        study.tell(trial, values, skip_if_finished=True)
    except optuna.TrialPruned:
        study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
    except InterruptedRunError:
        raise
    except ThinRNNError as error:
        trial.set_user_attr("error", " ".join(str(error).split()))
        study.tell(trial, state=TrialState.FAIL)
    remove_folder(folder / "checkpoints")  # of many trials they would fill the disk


def _trained(
    study: Study, trial: Trial, job: Job, settings: TrainingSettings, folder: Path
) -> RunFolder:
    """Return the finished run of a trial."""
    recipe: Any = recipes.recipe(recipes.preset(job.about.preset).recipe)
    sign = -1.0 if job.about.better == "higher" else 1.0
    data = recipe.load_data(settings, Silent())
    phase = "gated" if job.about.kind == "small" else "dense"
    each, steps = recipe.steps(settings, data, phase)
    epochs = -(-steps // each)

    def watch(event: dict[str, Any]) -> None:
        if event["event"] != "epoch" or event["phase"] != phase:
            return
        epoch, point = event["epoch"], Standing(sign * event[job.about.metric], event["params"])
        trial.set_user_attr(f"epoch {epoch}", [point.loss, point.params])
        done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if epoch < epochs and falls_behind(epoch, epochs, point, map(curve_of, done)):
            raise optuna.TrialPruned

    if (folder / "config.json").exists():
        return driver.resume(folder, [], progress=Silent(), watch=watch)
    return driver.start(
        recipe, settings, folder, preset=job.about.preset, progress=Silent(), watch=watch
    )


def _frozen(study: Study, trial: Trial) -> FrozenTrial:
    return next(t for t in study.get_trials(deepcopy=False) if t.number == trial.number)
