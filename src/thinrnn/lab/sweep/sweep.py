"""The workers of a sweep on this machine: started, watched, replaced when they die."""

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import SpawnProcess
from types import FrameType

from optuna.study import Study
from optuna.trial import FrozenTrial

from thinrnn.errors import RunError
from thinrnn.lab.run import InterruptedRunError
from thinrnn.lab.run.progress import Progress
from thinrnn.lab.sweep.study import Lookout, finished, requeue
from thinrnn.lab.sweep.worker import STOPPED, Job, work

PAUSE = 0.5  # seconds between two looks at the workers
MOST_DEATHS = 5  # of workers, with no trial finished in between


def sweep(job: Job, workers: int, progress: Progress, line: Callable[[FrozenTrial], str]) -> Study:
    """See a sweep through with so many workers, and return its study.

    Args:
        job: What the workers have to do.
        workers: How many there are on this machine.
        progress: Gets a line for each trial that ends.
        line: Writes that line.

    Raises:
        InterruptedRunError: Ctrl-C; the trials can go on.
        RunError: Workers die again and again.
    """
    study = job.study()
    seen = {trial.number for trial in finished(study)}
    progress.start("trials", job.trials, len(seen))
    lookout, deaths = Lookout(), 0
    with _team() as team:
        team += [_started(job) for _ in range(workers)]
        while team:
            time.sleep(PAUSE)
            for process in [one for one in team if not one.is_alive()]:
                team.remove(process)
                if process.exitcode == STOPPED:
                    raise KeyboardInterrupt
                if process.exitcode:
                    deaths += 1
                    if deaths > MOST_DEATHS:
                        raise RunError(f"{deaths} workers have ended before their trials did.")
                    team.append(_started(job))
            for trial in lookout.lost(study):
                if requeue(study, trial, is_lost=True):
                    progress.line(f"trial {trial.number}: its process is gone, another one goes on")
            for trial in finished(study):
                if trial.number not in seen:
                    seen.add(trial.number)
                    deaths = 0
                    progress.line(line(trial))
                    progress.step(len(seen))
    return study


def _started(job: Job) -> SpawnProcess:
    process = multiprocessing.get_context("spawn").Process(target=work, args=(job,))
    process.start()
    return process


@contextlib.contextmanager
def _team() -> Iterator[list[SpawnProcess]]:
    """Let the workers stop in order where this process is told to stop."""
    team: list[SpawnProcess] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield team
    except KeyboardInterrupt:
        raise InterruptedRunError(
            "stopped; the same command goes on with the trials that have begun"
        ) from None
    finally:
        signal.signal(signal.SIGTERM, before)
        for process in team:
            process.terminate()  # a training writes a checkpoint first
        for process in team:
            process.join()
