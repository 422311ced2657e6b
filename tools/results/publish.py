"""A finished run as one JSON file that can be shared: curves, figures, settings, no paths."""

import json
import re
from pathlib import Path
from typing import Any

from thinrnn._surgery.save import Precision
from thinrnn.errors import RunError
from thinrnn.lab import recipes
from thinrnn.lab.command import command
from thinrnn.lab.recipes.finish import store
from thinrnn.lab.recipes.protocol import Recipe
from thinrnn.lab.run import InputError, RunFolder
from thinrnn.lab.run.files import remove_folder, write_atomic
from thinrnn.lab.run.folder import KIND_OF
from thinrnn.lab.run.metrics import read_metrics
from thinrnn.lab.run.progress import Progress
from tools.results.paths import without_paths
from tools.results.pattern import pattern_picture
from tools.results.runs import place

NAME = re.compile(r"\w[\w.-]*")

# Settings of a control that was trained alone: its sizes, and what changes no result.
MAY_DIFFER = (
    *("phases", "embedding", "hidden", "rare_size", "tensorboard", "log_every"),
    *("checkpoint_seconds", "checkpoint_steps", "bench_seconds", "bench_threads"),
)


def publish(
    run: RunFolder,
    folder: Path,
    *,
    name: str = "",
    precision: Precision | None = None,
    data: Path | None = None,
    control: RunFolder | None = None,
    progress: Progress,
) -> Path:
    """Write what a run found to folder/NAME.json and return that file; NAME.svg shows its pattern.

    Its control may be another run's, which was trained beside it. With a precision its small model
    is also stored, in folder/models/NAME, read back and measured again on the run's text, or on the
    one in the folder `data`.
    """
    name = name or default_name(run)
    if not NAME.fullmatch(name):
        raise InputError(
            f"'{name}' is no name for a file in {folder}: give --name with letters, digits and .-_"
        )
    result = summed_up(run, name)
    if control is not None:
        add_control(result, run, control)
    if precision is not None:
        if run.summary("small") is None:
            raise RunError(f"{run.path} has no small model to store: leave --store out.")
        recipe, stored = recipes.recipe(run.config["recipe"]), folder / "models" / name
        model = run.path / "model"
        measured = _store(recipe, model, stored, precision, data, run.config, progress)
        result["stored"] = {"precision": precision, **measured}
    path = folder / f"{place(name)}.json"
    write_atomic(path, one_line_lists(result))
    pattern, picture = run.path / "pattern.json", folder / f"{place(name)}.svg"
    if pattern.exists():
        write_atomic(picture, pattern_picture(json.loads(pattern.read_bytes())))
    return path


def store_again(
    name: str, folder: Path, *, precision: Precision, data: Path, progress: Progress
) -> Path:
    """Store a published model in another precision, measure it as loaded; return its result."""
    path = folder / f"{place(name)}.json"
    if not path.exists():
        raise InputError(f"there is no {path}: publish the run first.")
    result = json.loads(path.read_bytes())
    if "stored" not in result:
        raise InputError(f"{path} has no stored model: publish the run again with --store.")
    recipe, stored = recipes.recipe(result["recipe"]), folder / "models" / name
    new = stored.with_name(f"{name}.new")
    measured = _store(recipe, stored, new, precision, data, result, progress)
    remove_folder(stored)
    new.rename(stored)
    result["stored"] = {"precision": precision, **measured}
    write_atomic(path, one_line_lists(result))
    return path


def default_name(run: RunFolder) -> str:
    """Return the preset's name, or the folder's; seeds other than 0 are in the name."""
    name = run.config.get("preset") or run.path.resolve().name
    seed = run.config.get("seed")
    return f"{name}-seed{seed}" if seed else name


def summed_up(run: RunFolder, name: str) -> dict[str, Any]:
    """Return a run as JSON values; it must be finished."""
    config, models = run.config, run.summaries()
    phases = config["settings"]["phases"]
    missing = [phase for phase in phases if KIND_OF[phase] not in models]
    if missing:
        raise RunError(
            f"{run.path} is not finished ({', '.join(missing)} is missing): "
            f"continue it with '{command('train', '--resume', run.path)}'."
        )
    found = {
        "name": name,
        "preset": config.get("preset"),
        "recipe": config["recipe"],
        "command": config["command"],
        "seed": config["seed"],
        "text": _with_corpus(config),
        "models": models,
        "settings": config["settings"],
        "environment": config["environment"],
        "curves": curves(run),
    }
    cleaned: dict[str, Any] = without_paths(found)
    return cleaned


def add_control(result: dict[str, Any], run: RunFolder, other: RunFolder) -> None:
    """Put the control that another run trained into the results of a run, if it is its control."""
    control = summed_up(other, result["name"])
    small, trained = result["models"].get("small"), control["models"].get("control")
    reason = _no_control(run.config, other.config)
    if small is None or trained is None:
        reason = "one must have a small model and the other a control"
    elif reason is None and [*small["neurons"].values()] != [*trained["neurons"].values()]:
        reason = f"it has neurons {trained['neurons']}, not {small['neurons']}"
    if reason is not None:
        raise RunError(
            f"{other.path} is no control of {run.path}: {reason}. Train one with the same "
            "settings, phases=control and the sizes of the small model."
        )
    result["models"]["control"] = trained
    result["curves"]["control"] = control["curves"]["control"]
    result["control_run"] = {key: control[key] for key in ("command", "environment")}


def _no_control(config: dict[str, Any], other: dict[str, Any]) -> str | None:
    """Return why a run cannot have trained the control of another, or None.

    Files and folders are known by their names, for one run may have been elsewhere; the texts are
    known by what is in them.
    """
    for key in ("recipe", "seed", "text"):
        if config[key] != other[key]:
            return f"{key} is {other[key]}, not {config[key]}"
    ours, theirs = (without_paths(c["settings"]) for c in (config, other))
    for key, value in ours.items():
        if key not in MAY_DIFFER and theirs.get(key) != value:
            return f"its {key} is {theirs.get(key)}, not {value}"
    return None


def curves(run: RunFolder) -> dict[str, dict[str, Any]]:
    """Return, per phase, what was measured at the end of each epoch."""
    found: dict[str, dict[str, Any]] = {}
    for event in read_metrics(run.path / "metrics.jsonl"):
        if event["event"] != "epoch":
            continue
        curve = found.setdefault(event["phase"], {"kept": {}})
        for key, form in (
            ("epoch", None),
            ("train_loss", 4),
            *((name, 3) for name in run.config.get("metrics") or ["valid_perplexity"]),
            ("params", None),
            ("seconds", 1),
        ):
            if key not in event:  # measured at the end of the run alone
                continue
            value = event[key]
            curve.setdefault(key, []).append(value if form is None else round(value, form))
        for group, kept in event["kept"].items():
            curve["kept"].setdefault(group, []).append(kept)
    return found


def one_line_lists(value: Any) -> str:
    """Return JSON with an entry a line, and lists of plain values on one line."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    plain = re.compile(r"\[\s+([^\[\]{}]*?)\s+\]")
    return plain.sub(lambda found: "[" + re.sub(r"\s*\n\s*", " ", found[1]) + "]", text) + "\n"


def _with_corpus(config: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about a text, with the files of the public corpus that it is, if any."""
    text: dict[str, Any] = config["text"]
    corpus = recipes.recipe(config["recipe"]).corpus_of(text["sha256"])
    if corpus is None:
        return text
    files = {file.name: file.sha256 for file in corpus.files}
    return {"corpus": corpus.title, **text, "files": files}


def _store(
    recipe: Recipe[Any, Any],
    model: Path,
    folder: Path,
    precision: Precision,
    data: Path | None,
    config: dict[str, Any],
    progress: Progress,
) -> dict[str, Any]:
    """Store the small model of a folder; return what the stored one, as loaded, measures."""
    store(recipe, model, folder, precision)
    files = {} if data is None else recipe.find_texts(data)
    measured = recipe.score(folder, files, config=config, progress=progress)
    size = sum(file.stat().st_size for file in folder.iterdir())
    return {**measured, "bytes": size}
