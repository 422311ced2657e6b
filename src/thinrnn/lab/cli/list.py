"""thinrnn list: presets, runs and settings."""

from pathlib import Path
from typing import Annotated, Any

import typer

from thinrnn.lab.cli.options import Json
from thinrnn.lab.command import command

OTHER_VERSION = "none, begun by another version"


def list_all(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where to look for runs.")
    ] = Path("runs"),
    settings: Annotated[
        str | None, typer.Option(metavar="PRESET", help="Show all settings of a preset.")
    ] = None,
    all: Annotated[
        bool, typer.Option("--all", help="Also list the presets that reproduce the paper.")
    ] = False,
    json: Json = False,
) -> None:
    """List presets with their measured results, and the runs in a folder."""
    from thinrnn._table import table
    from thinrnn.errors import ThinRNNError
    from thinrnn.lab import recipes
    from thinrnn.lab.cli.output import show
    from thinrnn.lab.recipes.settings import as_json, described
    from thinrnn.lab.run.folder import find_runs

    if settings is not None:
        chosen = recipes.preset(settings).settings()
        last = f"next: {command('train', settings, '--set', 'KEY=VALUE')}"
        show({"settings": as_json(chosen)}, table(described(chosen)), last, as_json=json)
        return
    presets = recipes.presets(all=all).values()
    runs: list[dict[str, Any]] = []
    damaged: list[str] = []
    for path in find_runs(folder):
        try:
            runs.append(describe(path))
        except ThinRNNError as error:  # one damaged run must not hide the others
            damaged.append(f"left out {path}: {error}")
    rows = [("preset", "trains", "measured (valid / test)")]
    rows += [(p.name, p.summary, p.expected or "-") for p in presets]
    text = table(rows)
    if not all:
        text += f"\n'{command('list', '--all')}' adds the presets that reproduce the paper"
    if runs:
        heads = ("run", "preset", "models", "valid perplexity", "weights")
        text += "\n\n" + table([heads, *(tuple(map(_cell, run.values())) for run in runs)])
        newest = runs[-1]
        step = {"none": ["train", "--resume", newest["run"]], OTHER_VERSION: ["demo"]}
        last = f"\nnext: {command(*step.get(newest['done'], ['report', newest['run']]))}"
    else:
        last = f"\nno runs in {folder}; next: {command('demo')}"
    text += "".join(f"\n{line}" for line in damaged)
    result = {
        "presets": [
            {"name": p.name, "recipe": p.recipe, "summary": p.summary, "expected": p.expected}
            for p in presets
        ],
        "runs": runs,
        "damaged": damaged,
    }
    show(result, text, last, as_json=json)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def describe(path: Path) -> dict[str, Any]:
    """Return what the list shows of a run."""
    from thinrnn.lab.run import RunFolder

    run = RunFolder(path)
    summaries = run.summaries()
    best = summaries.get("small") or summaries.get("dense") or {}
    perplexity = best.get("valid_perplexity")
    return {
        "run": str(path),
        "preset": run.config.get("preset"),
        "done": ", ".join(summaries) or ("none" if run.is_readable_here else OTHER_VERSION),
        "valid_perplexity": None if perplexity is None else round(perplexity, 2),
        "weights": best.get("weights"),
    }
