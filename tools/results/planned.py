"""The runs that are still needed: results/runs.toml, and how far each has come."""

import tomllib
from pathlib import Path
from typing import Any

from tools.results.runs import Results, millions
from tools.results.tables import markdown

FILE = "runs.toml"


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the runs of the list; none if it is not there."""
    path = folder / FILE
    runs: list[dict[str, Any]] = []
    return tomllib.loads(path.read_text("utf-8"))["run"] if path.exists() else runs


def table(runs: list[dict[str, Any]], results: Results) -> str:
    """Return the runs with how many of their seeds are done, and what those reached."""
    lines = []
    for run in runs:
        found = _that_count(run, results).figures(run["name"], run["model"])
        done = 0 if found is None else len(found.second)
        state = f"{done} of {run['seeds']}" if done else "to run"
        cells = ("-", "-", "-")
        if found is not None:
            cells = (found.how, str(found), millions(found.weights))
        lines.append([run["part"], run["what"], f"`{run['name']}`", state, *cells])
    head = ("part", "model", "run", "seeds done", "how", "scores")
    return markdown((*head, "weights"), lines)


def _that_count(run: dict[str, Any], results: Results) -> Results:
    """Return the results with the settings that a run needs; older files may have others."""
    needs = run.get("needs", {}).items()
    return Results(
        {
            name: found
            for name, found in results.runs.items()
            if all(found["settings"].get(key) == value for key, value in needs)
        }
    )
