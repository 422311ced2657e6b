"""The study of a sweep: its trials, in a journal file or in a database.

Several processes, on several machines too, work on one study. A trial whose process is gone is
marked as failed, and a new one takes over its settings and its run folder.
"""

import contextlib
import os
import socket
import time
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import DBAPIError

from thinrnn.lab.run.errors import InputError
from thinrnn.lab.run.files import storage
from thinrnn.lab.sweep.median import Curve, Standing

JOURNAL = "study.journal"
BEAT = 5.0  # seconds between two signs of life of a trial
SILENCE = 60.0  # seconds without one after which its process is gone
MOST_TRIES = 3  # of one trial whose process ends each time


@dataclass(frozen=True)
class About:
    """What all trials of a study have in common."""

    preset: str
    settings: dict[str, Any]
    space: dict[str, Any]  # as in the TOML file
    text: str  # fingerprint of the data
    metric: str
    better: str  # lower or higher
    cost: str
    kind: str  # which model counts: small or dense


def open_study(about: About, out: Path, url: str | None, name: str) -> Study:
    """Return the study of a sweep, a new one where there is none.

    Raises:
        InputError: The database cannot be opened, or the study belongs to another sweep.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", ExperimentalWarning)
    try:
        study = _created(about, out, url, name)
    except InputError:
        raise
    except Exception as error:  # whatever a database driver raises
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"cannot open the study in {url or out / JOURNAL}: {reason}") from error
    known = study.user_attrs.get("about")
    if known is None:
        study.set_user_attr("about", asdict(about))
    elif different := [key for key, value in asdict(about).items() if known.get(key) != value]:
        raise InputError(
            f"the study '{name}' in {url or out} is a sweep with another {different[0]}: "
            "choose another --out, or another --name."
        )
    return study


def _created(about: About, out: Path, url: str | None, name: str) -> Study:
    directions = optuna.study.StudyDirection
    sense = directions.MAXIMIZE if about.better == "higher" else directions.MINIMIZE
    for is_last in (False, True):
        try:
            return optuna.create_study(
                storage=_storage(out, url),
                study_name=name,
                directions=[sense, directions.MINIMIZE],
                sampler=optuna.samplers.TPESampler(constant_liar=True),
                load_if_exists=True,
            )
        except DBAPIError:  # another machine may be making the tables of a new database
            if is_last:
                raise
            time.sleep(2.0)
    raise AssertionError


def _storage(out: Path, url: str | None) -> Any:
    if url is not None:
        return url
    with storage(out):
        out.mkdir(parents=True, exist_ok=True)
        backend = JournalFileBackend(str(out / JOURNAL))
    return optuna.storages.JournalStorage(backend)


def trials_of(study: Study) -> list[FrozenTrial]:
    """Return the trials that count: not those that lost their process, whose work went on."""
    return [t for t in study.get_trials(deepcopy=False) if _counts(t)]


def _counts(trial: FrozenTrial) -> bool:
    return trial.state != TrialState.FAIL or "error" in trial.user_attrs


def finished(study: Study) -> list[FrozenTrial]:
    """Return the trials that have come to an end of their own."""
    return [trial for trial in trials_of(study) if trial.state.is_finished()]


def next_trial(study: Study, most: int) -> Trial | None:
    """Return a trial to work on, or None if there are enough; waits while one might be lost."""
    while True:
        known = trials_of(study)
        states = [trial.state for trial in known]
        if TrialState.WAITING in states or len(known) < most:
            trial = study.ask()
            if sum(other.number < trial.number for other in trials_of(study)) < most:
                return trial
            study.tell(trial, state=TrialState.FAIL)  # another process was faster
        elif TrialState.RUNNING in states:
            time.sleep(1.0)
        else:
            return None


def requeue(study: Study, trial: FrozenTrial, *, is_lost: bool) -> bool:
    """Let another process go on with a trial; False if one does already.

    Args:
        study: The study.
        trial: The trial.
        is_lost: Whether its process died, and was not asked to stop.
    """
    try:
        study.tell(trial.number, state=TrialState.FAIL)
    except (ValueError, UpdateFinishedTrialError):
        return False
    if trial.params:
        about = {"tries": trial.user_attrs.get("tries", 1) + is_lost}
        if "run" in trial.user_attrs:
            about["run"] = trial.user_attrs["run"]
        study.enqueue_trial(trial.params, user_attrs=about)
    return True


class Lookout:
    """Notices running trials whose process is gone: on this machine at once, elsewhere by silence.

    Silence is measured by the clock of this machine alone.
    """

    def __init__(self) -> None:
        self.heard: dict[int, tuple[Any, float]] = {}

    def lost(self, study: Study) -> list[FrozenTrial]:
        """Return the trials whose process must be gone."""
        now, lost = time.monotonic(), []
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            beat = trial.user_attrs.get("beat")
            last, since = self.heard.get(trial.number, (None, now))
            if trial.number not in self.heard or beat != last:
                self.heard[trial.number] = beat, now
                since = now
            if now - since > SILENCE or _is_gone(trial.user_attrs.get("worker", "")):
                lost.append(trial)
        return lost


def worker_name() -> str:
    """Return the name of this process, which no other has, on any machine."""
    return f"{_machine()}:{os.getpid()}"


def _machine() -> str:
    return f"{socket.gethostname()}-{uuid.getnode():x}"


def _is_gone(worker: str) -> bool:
    """Whether a worker of this machine has ended; of others nobody knows."""
    machine, _, process = worker.rpartition(":")
    if machine != _machine() or os.name != "posix":
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # somebody else's process has the number now
        pass
    return False


@contextlib.contextmanager
def signs_of_life(trial: Trial) -> Iterator[None]:
    """Inside `with`, a trial shows that its process is there."""
    ended = Event()

    def beat() -> None:
        number = 0
        while not ended.wait(BEAT):
            number += 1
            with contextlib.suppress(UpdateFinishedTrialError):  # another process has taken over
                trial.set_user_attr("beat", [worker_name(), number])

    thread = Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def curve_of(trial: FrozenTrial) -> Curve:
    """Return where a trial was after each epoch."""
    return {
        int(key.removeprefix("epoch ")): Standing(*value)
        for key, value in trial.user_attrs.items()
        if key.startswith("epoch ")
    }
