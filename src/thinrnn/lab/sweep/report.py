"""The report of a sweep: the Pareto front, the best settings, and which settings mattered."""

import itertools
from pathlib import Path
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from thinrnn.lab.report import numbers
from thinrnn.lab.report.charts import Point, scatter_chart
from thinrnn.lab.report.parts import Card, Chart, Key, Table
from thinrnn.lab.report.write import render, write_text
from thinrnn.lab.sweep.outcome import (
    TITLES,
    configuration,
    ended,
    front,
    importance,
    shown,
)
from thinrnn.lab.sweep.study import trials_of

REPORT = "report.html"


def write_sweep_report(study: Study, out: Path) -> Path:
    """Write the page of a sweep into its folder."""
    about = study.user_attrs["about"]
    path = out / REPORT
    page = render(
        "sweep.html",
        title=f"Sweep of {about['preset']}",
        cards=_cards(study),
        chart=_chart(study),
        best=_table(study, front(study), "Best trials: none is better in both"),
        bars=[
            (f"What decides {title}", [(name, numbers.percent(s), s) for name, s in found.items()])
            for title, found in _importances(study)
        ],
        every=_table(study, trials_of(study), "All trials", with_end=True),
        settings=Table("What all trials share", [], list(configuration(study).items())),
    )
    write_text(page, path)
    return path


def _words(study: Study) -> tuple[str, str, numbers.Write]:
    """Return the titles of the two objectives, and how to write the second."""
    about = study.user_attrs["about"]
    write = numbers.milliseconds if "milliseconds" in about["cost"] else numbers.short
    return about["metric"].replace("_", " "), TITLES[about["cost"]], write


def _cards(study: Study) -> list[Card]:
    metric, cost, write = _words(study)
    states = [trial.state for trial in trials_of(study)]
    cards = [
        Card("trials", str(states.count(TrialState.COMPLETE)), "finished"),
        Card("stopped early", str(states.count(TrialState.PRUNED)), "behind the median"),
    ]
    if best := front(study):
        sense = max if study.user_attrs["about"]["better"] == "higher" else min
        top = sense(best, key=lambda trial: trial.values[0])
        cheap = best[0]
        cards += [
            Card(f"best {metric}", numbers.score(top.values[0]), f"{write(top.values[1])} {cost}"),
            Card(f"fewest {cost}", write(cheap.values[1]), f"{metric} {_score(cheap)}"),
        ]
    return cards


def _score(trial: FrozenTrial) -> str:
    return numbers.score(trial.values[0])


def _chart(study: Study) -> Chart | None:
    metric, cost, write = _words(study)
    done = [t for t in trials_of(study) if t.state == TrialState.COMPLETE]
    if not done:
        return None
    best = front(study)
    on_front = {trial.number for trial in best}
    points = {
        t.number: Point(
            "small" if t.number in on_front else "dense",
            t.values[1],
            t.values[0],
            "small" if t.number in on_front else "other",
        )
        for t in done
    }
    line = [points[trial.number] for trial in best]
    label = f"{metric} against {cost} of {len(done)} trials"
    return Chart(
        "front",
        metric,
        f"against {cost}",
        [Key("no other is better in both", "", "small", "dot"), Key("others", "", "other", "ring")],
        scatter_chart("front", label, cost, list(points.values()), itertools.pairwise(line)),
        Table(
            "The points",
            ["trial", cost, metric],
            [[str(t.number), write(t.values[1]), _score(t)] for t in done],
        ),
    )


def _importances(study: Study) -> list[tuple[str, dict[str, float]]]:
    metric, cost, _ = _words(study)
    found = [(title, importance(study, place)) for place, title in enumerate((metric, cost))]
    return [(title, shares) for title, shares in found if shares]


def _table(
    study: Study, trials: list[FrozenTrial], caption: str, *, with_end: bool = False
) -> Table | None:
    if not trials:
        return None
    metric, cost, write = _words(study)
    names = list(study.user_attrs["about"]["space"])
    rows: list[list[str]] = []
    for trial in trials:
        values: Any = trial.values or (float("nan"), float("nan"))
        settings = [shown(trial.params[n]) if n in trial.params else "" for n in names]
        end = [ended(trial)] if with_end else []
        rows.append(
            [str(trial.number), numbers.score(values[0]), write(values[1]), *settings, *end]
        )
    head = ["trial", metric, cost, *names, *(["end"] if with_end else [])]
    return Table(caption, head, rows)
