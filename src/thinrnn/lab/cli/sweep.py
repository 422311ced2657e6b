"""thinrnn sweep: many runs with settings chosen by Optuna."""

from pathlib import Path
from typing import Annotated, Any

import typer

from thinrnn.lab.cli.options import Json, Set
from thinrnn.lab.command import command


def sweep(
    preset: Annotated[
        str, typer.Argument(metavar="PRESET", help="lm, or another one that 'thinrnn list' shows.")
    ],
    space: Annotated[Path, typer.Option(help="TOML file: which settings vary, between what.")],
    trials: Annotated[int, typer.Option(min=1, help="Trials of the whole sweep.")] = 40,
    workers: Annotated[int, typer.Option(min=1, help="Processes on this machine.")] = 1,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with *train*.txt, *valid*.txt, *test*.txt; or squad/, glove/."),
    ] = None,
    train: Annotated[str | None, typer.Option(help="Training text, UTF-8.")] = None,
    valid: Annotated[str | None, typer.Option(help="Validation text.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with settings that all trials share.")
    ] = None,
    set: Set = None,
    metric: Annotated[
        str | None, typer.Option(help="What to measure, such as f1; the default is the first.")
    ] = None,
    cost: Annotated[
        str,
        typer.Option(help="params, weights, macs, bytes, milliseconds or onnx_milliseconds."),
    ] = "params",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the sweep; the default is runs/sweep-PRESET.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Database for the trials, not a file in the folder."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the study; the default is that of the folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Look for the best settings of a preset: good and small, or good and fast.

    Optuna proposes settings from the space; each trial is a run without a control. Trials that
    fall behind the median are stopped. The same command goes on with a sweep that was stopped, and
    joins one from another machine. A report shows the best trials. (The function thinrnn.sweep is
    another thing: it cuts one trained model to several sizes.)
    """
    from thinrnn._table import table
    from thinrnn.lab import recipes
    from thinrnn.lab.cli.output import progress, show
    from thinrnn.lab.cli.run import choose
    from thinrnn.lab.recipes.settings import as_json
    from thinrnn.lab.run import InputError
    from thinrnn.lab.sweep.space import parse_space, read_table

    files = {"train": train, "valid": valid}
    values: dict[str, Any] = {key: path for key, path in files.items() if path is not None}
    chosen, settings = choose(preset, values, data=data, config=config, changes=set or [])
    varied = read_table(space)
    settings = settings.with_full_paths()
    settings = settings.replaced(
        phases=tuple(phase for phase in settings.phases if phase != "control"), tensorboard=False
    )
    parse_space(varied, settings)

    from thinrnn.lab.driver import choose_device
    from thinrnn.lab.sweep.outcome import TITLES, ended, front, settings_in_words, shown
    from thinrnn.lab.sweep.outcome import as_json as outcome
    from thinrnn.lab.sweep.report import write_sweep_report
    from thinrnn.lab.sweep.study import About, finished
    from thinrnn.lab.sweep.sweep import sweep as run_sweep
    from thinrnn.lab.sweep.worker import TRIALS, Job, threads_for

    recipe: Any = recipes.recipe(chosen.recipe)
    known = {name: way for name, way in recipe.metrics.items() if not name.startswith("test")}
    if metric is not None and metric not in known:
        raise InputError(f"--metric is '{metric}': choose one of {', '.join(known)}.")
    if cost not in TITLES:
        raise InputError(f"--cost is '{cost}': choose one of {', '.join(TITLES)}.")
    if not settings.phases:
        raise InputError(f"{chosen.name} trains a control alone: choose another preset.")
    if cost == "onnx_milliseconds":
        if not recipe.times_in_onnx:
            raise InputError(
                f"models of {chosen.name} are not timed in ONNX Runtime: --cost milliseconds."
            )
        if not settings.bench_seconds:
            raise InputError("bench_seconds is 0: --set bench_seconds=0.5 to time the models.")
        from thinrnn.onnx.runtime import require_onnx

        require_onnx()
    headline = next(iter(known)) if metric is None else metric
    folder = Path("runs") / f"sweep-{chosen.name}" if out is None else out
    with progress(json) as shown_progress:
        settings, _ = recipe.choose(settings, choose_device(settings))  # once for all trials
        text = recipe.load_data(settings, shown_progress)
        recipe.check(settings, text, settings.phases)
        about = About(
            preset=chosen.name,
            settings=as_json(settings),
            space=varied,
            text=text.facts()["sha256"],
            metric=headline,
            better=known[headline],
            cost=cost,
            kind="small" if "gated" in settings.phases else "dense",
        )
        threads = threads_for(settings, workers)
        job = Job(about, folder, storage, name or folder.name, trials, threads)

        def line(trial: Any) -> str:
            values = trial.values or ()
            numbers = ", ".join(
                f"{what.replace('_', ' ')} {shown(value)}"
                for what, value in zip((headline, cost), values, strict=False)
            )
            parts = [ended(trial), numbers, settings_in_words(trial)]
            return f"trial {trial.number}: " + "  ".join(part for part in parts if part)

        study = run_sweep(job, workers, shown_progress, line)
    report = write_sweep_report(study, folder)
    best = front(study)
    if not best:
        errors = [t.user_attrs["error"] for t in finished(study) if "error" in t.user_attrs]
        raise InputError(f"no trial came to its end: {errors[-1] if errors else 'all stopped'}")
    rows = [("trial", headline.replace("_", " "), TITLES[cost], "settings")]
    rows += [
        (str(t.number), shown(t.values[0]), shown(t.values[1]), settings_in_words(t)) for t in best
    ]
    result = {"sweep": str(folder), "report": str(report), **outcome(study)}
    here = [t for t in best if (folder / TRIALS / t.user_attrs["run"] / "config.json").exists()]
    run = folder / TRIALS / (here or best)[-1].user_attrs["run"]
    last = f"\nwrote {report}; next: {command('report', run)}"
    text_rows = "best trials: none is better in both\n" + table(rows, "<>><")
    show(result, text_rows, last, as_json=json)
