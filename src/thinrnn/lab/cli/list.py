"""thinrnn list: presets, runs, settings."""

from pathlib import Path
from typing import Annotated, Any

import typer

from thinrnn.lab.cli.options import Json
from thinrnn.lab.command import command


def list_all(
    folder: Annotated[Path, typer.Argument(help="Where to look for runs.")] = Path("runs"),
    settings: Annotated[
        str | None, typer.Option(metavar="PRESET", help="Show all settings of a preset.")
    ] = None,
    json: Json = False,
) -> None:
    """List the presets with what they reach, and the runs that are here."""
    from thinrnn.lab import recipes
    from thinrnn.lab.cli.output import show
    from thinrnn.lab.recipes.settings import as_json, described
    from thinrnn.lab.run.folder import find_runs
    from thinrnn.lab.table import table

    if settings is not None:
        chosen = recipes.preset(settings).settings()
        last = f"next: thinrnn train {settings} --set KEY=VALUE"
        show({"settings": as_json(chosen)}, table(described(chosen)), last, as_json=json)
        return
    presets = recipes.presets().values()
    runs = [describe(path) for path in find_runs(folder)]
    rows = [("preset", "what it is", "expected")]
    rows += [(p.name, p.summary, p.expected or "-") for p in presets]
    text = table(rows)
    if runs:
        heads = ("run", "preset", "phases done", "valid perplexity", "weights")
        text += "\n\n" + table([heads, *(tuple(map(_cell, run.values())) for run in runs)])
        newest = runs[-1]
        words = ["train", "--resume"] if newest["done"] == "none" else ["report"]
        last = f"next: {command(*words, newest['run'])}"
    else:
        last = f"no runs in {folder}; next: thinrnn demo"
    result = {
        "presets": [
            {"name": p.name, "recipe": p.recipe, "summary": p.summary, "expected": p.expected}
            for p in presets
        ],
        "runs": runs,
    }
    show(result, text, last, as_json=json)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def describe(path: Path) -> dict[str, Any]:
    """Return one line about a run."""
    from thinrnn.lab.run import RunFolder

    run = RunFolder(path)
    summaries = run.summaries()
    best = summaries.get("small") or summaries.get("dense") or {}
    perplexity = best.get("valid_perplexity")
    return {
        "run": str(path),
        "preset": run.config.get("preset"),
        "done": ", ".join(summaries) or "none",
        "valid_perplexity": None if perplexity is None else round(perplexity, 2),
        "weights": best.get("weights"),
    }
