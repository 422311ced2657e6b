"""What `train` and `demo` share: settings, a run folder, the end of a run."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thinrnn.lab import recipes
from thinrnn.lab.cli.output import progress, show
from thinrnn.lab.cli.summary import run_table, verdict_lines
from thinrnn.lab.command import command
from thinrnn.lab.data.corpora import corpus
from thinrnn.lab.recipes.named_settings import Preset
from thinrnn.lab.recipes.settings import TrainingSettings, changed, from_toml
from thinrnn.lab.run import InputError, InterruptedRunError, RunFolder, StorageError
from thinrnn.lab.run.folder import free_name
from thinrnn.lab.run.progress import Progress, Silent
from thinrnn.lab.verdicts import verdicts

if TYPE_CHECKING:
    from thinrnn.lab.device.processes import Processes


def start_or_resume(
    preset: str | None,
    values: dict[str, Any],
    *,
    data: Path | None = None,
    out: Path | None,
    config: Path | None,
    changes: list[str],
    resume: Path | None,
    as_json: bool,
) -> RunFolder:
    """Return the finished run.

    Settings come from the preset, --data, --config, the options and --set; later ones win.
    """
    from thinrnn.lab import driver
    from thinrnn.lab.device.processes import started

    if resume is not None:
        if preset or values or data or out or config:
            raise InputError(
                "--resume takes everything from the run folder: give it alone, or with --set."
            )
        group = started(on_cpu=driver.settings_of(RunFolder(resume), changes).device == "cpu")
        with _shown(as_json, group) as shown, _naming_resume(resume):
            return driver.resume(resume, changes, progress=shown, processes=group)
    if preset is None:
        raise InputError(
            f"there is no preset: give one, as in '{command('train', 'lm')}', or --resume RUN."
        )
    chosen, settings = choose(preset, values, data=data, config=config, changes=changes)
    recipe = recipes.recipe(chosen.recipe)
    group = started(on_cpu=settings.device == "cpu")
    free = group.of_first(lambda: free_name(Path("runs") / chosen.name))
    folder = free if out is None else out
    with _shown(as_json, group) as shown, _naming_resume(folder):
        return driver.start(
            recipe, settings, folder, preset=chosen.name, progress=shown, processes=group
        )


def choose(
    preset: str,
    values: dict[str, Any],
    *,
    data: Path | None,
    config: Path | None,
    changes: list[str],
) -> tuple[Preset, TrainingSettings]:
    """Return a preset and its settings with all changes; later ones win."""
    chosen = recipes.preset(preset)
    settings = chosen.settings()
    if data is not None:
        texts = recipes.recipe(chosen.recipe).texts_in(data, chosen.corpus)
        settings = settings.replaced(**texts)
    if "minutes" in values and getattr(settings, "minutes", None) is None:
        raise InputError(
            f"the settings of {chosen.name} are fixed: --minutes is for lm and char; leave it out."
        )
    if config is not None:
        settings = from_toml(settings, config)
    settings = changed(settings.replaced(**values), changes)
    if chosen.corpus and not getattr(settings, "train", ""):
        title = corpus(chosen.corpus).title
        raise InputError(
            f"{chosen.name} is for the {title}: give --data DIR; "
            f"'{command('data', chosen.corpus, 'DIR')}' downloads it."
        )
    return chosen, settings


def _shown(as_json: bool, group: "Processes") -> contextlib.AbstractContextManager[Progress]:
    """Return where progress goes: of several processes only the first one shows it."""
    return progress(as_json) if group.is_first else contextlib.nullcontext(Silent())


@contextlib.contextmanager
def _naming_resume(folder: Path) -> Iterator[None]:
    """Add to an error that leaves the run unfinished how to go on with it."""
    again = f"'{command('train', '--resume', folder)}'"
    try:
        yield
    except StorageError as error:
        raise StorageError(f"{error} Then continue with {again}") from error
    except KeyboardInterrupt as error:
        if isinstance(error.__context__, InterruptedRunError):  # Ctrl-C again on the way out
            raise error.__context__ from None
        if (folder / "config.json").exists():
            raise InterruptedRunError(f"stopped; go on with {again}") from None
        raise


def finish(run: RunFolder, *, as_json: bool) -> int:
    """Print the end of a run and return the exit code: 0 if every verdict holds, else 1.

    Of several processes only the one that wrote the run prints.
    """
    if not run.is_written_here:
        return 0
    summaries = run.summaries()
    found = verdicts(run.config, summaries)
    kept = all(verdict.holds for verdict in found)
    result = {
        "run": str(run.path),
        **summaries,
        "promises": [{"text": v.text, "holds": v.holds} for v in found],
        "kept": kept,
    }
    text = "\n\n".join(
        part for part in (run_table(run.config, summaries), verdict_lines(found)) if part
    )
    use = "ask" if run.config["recipe"] == "squad" else "generate"
    after = command(use, run.path)
    if "small" not in summaries:
        after = command("eval", run.path, "--kind", next(iter(summaries)))
    report = run.path / "report.html"
    last = f"\nwrote {report if report.exists() else run.path}; next: {after}"
    show(result, text, last, as_json=as_json)
    return 0 if kept else 1
