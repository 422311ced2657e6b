"""What a study has found: the best trials, what mattered, and each trial in words."""

import json
import warnings
from typing import Any

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from thinrnn.lab.sweep.study import trials_of

TITLES = {
    "params": "parameters",
    "weights": "weights",
    "macs": "mult-adds per step",
    "bytes": "bytes",
    "milliseconds": "milliseconds per call, PyTorch",
    "onnx_milliseconds": "milliseconds per call, ONNX Runtime",
}
FEWEST = 4  # finished trials from which the importance of settings can be told


def front(study: Study) -> list[FrozenTrial]:
    """Return the trials that no other one beats in both objectives, the cheapest first."""
    return sorted(study.best_trials, key=lambda trial: (trial.values[1], trial.number))


def importance(study: Study, objective: int) -> dict[str, float]:
    """Return the share of each setting in how good the best trials are; empty if unknown."""
    done = [t for t in study.get_trials(deepcopy=False) if t.state == TrialState.COMPLETE]
    if len(done) < FEWEST:
        return {}
    sign = 1.0 if study.directions[objective] == optuna.study.StudyDirection.MINIMIZE else -1.0

    def value(trial: FrozenTrial) -> float:
        return sign * float(trial.values[objective])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that less is better, which `value` sees to
        try:
            shares: dict[str, float] = optuna.importance.get_param_importances(study, target=value)
        except (ValueError, RuntimeError):  # a setting that had one value only, say
            return {}
    return shares


def ended(trial: FrozenTrial) -> str:
    """Return how a trial ended, in a word or two."""
    if trial.state == TrialState.FAIL:
        return f"failed: {trial.user_attrs['error']}"
    words = {TrialState.COMPLETE: "finished", TrialState.PRUNED: "stopped early"}
    return words.get(trial.state, "not finished")


def shown(value: Any) -> str:
    """Return a setting as people read it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def settings_in_words(trial: FrozenTrial) -> str:
    return ", ".join(f"{name}={shown(value)}" for name, value in trial.params.items())


def as_json(study: Study) -> dict[str, Any]:
    """Return all of it as JSON values."""
    best = {trial.number for trial in front(study)}
    about = study.user_attrs["about"]
    return {
        "metric": about["metric"],
        "cost": about["cost"],
        "trials": [
            {
                "trial": t.number,
                "end": ended(t),
                "settings": t.params,
                "run": t.user_attrs.get("run"),
                about["metric"]: t.values[0] if t.values else None,
                about["cost"]: t.values[1] if t.values else None,
                "is_best": t.number in best,
            }
            for t in trials_of(study)
        ],
        "importance": {
            about[what]: importance(study, place) for place, what in enumerate(("metric", "cost"))
        },
    }


def configuration(study: Study) -> dict[str, str]:
    """Return what all trials share, as text."""
    about = study.user_attrs["about"]
    varied = set(about["space"])
    settings = {k: json.dumps(v) for k, v in about["settings"].items() if k not in varied}
    return {"preset": about["preset"], **settings}
