"""Puts the report together and on disk."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from thinrnn._files import write_safely
from thinrnn.errors import RunError
from thinrnn.lab.report import comparison, configuration, curves, numbers, pictures, result
from thinrnn.lab.report.parts import Chart
from thinrnn.lab.report.read import Run, read_run
from thinrnn.lab.verdicts import verdicts

FOLD = 12  # of many pictures, so many are shown at once


def write_page(folders: Sequence[Path], out: Path | None) -> Path:
    """Writes the report; see `write_report`."""
    if not folders:
        raise RunError("no run folder was given; 'thinrnn list' shows the runs that are here")
    runs = _distinct([read_run(Path(folder)) for folder in folders])
    path = Path(out) if out is not None else runs[0].folder / "report.html"
    write_text(page(runs), path)
    return path


def write_text(text: str, path: Path) -> None:
    """Writes a page at once."""
    try:
        # What is not UTF-8 in a folder's name arrives as lone surrogates, which no file can hold.
        data = text.encode("utf-8", errors="replace")
        write_safely(path, lambda temporary: temporary.write_bytes(data))
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}; name another file") from error


def page(runs: Sequence[Run]) -> str:
    """Returns the report as HTML: one run in full, or several side by side."""
    return render(
        "run.html" if len(runs) == 1 else "comparison.html",
        title=" and ".join(run.name for run in runs),
        runs=runs,
        refresh=any(run.is_running and not run.finished for run in runs),
        result=result,
        curves=curves,
        comparison=comparison,
        pictures=pictures,
        configuration=configuration,
        verdicts=lambda run: (
            verdicts(run.config, {k: s.numbers for k, s in run.summaries.items()})
            if run.finished
            else []
        ),
        training=_training(runs),
    )


def render(template: str, **values: Any) -> str:
    """Returns a template filled in; a page that is not about runs gives no `runs`."""
    environment = Environment(
        loader=PackageLoader("thinrnn.lab.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    environment.globals |= {"percent": numbers.percent, "count": numbers.count, "fold": FOLD}
    return environment.get_template(template).render({"runs": (), "refresh": False} | values)


def _training(runs: Sequence[Run]) -> list[Chart]:
    if len(runs) == 1:
        return curves.run_charts(runs[0])
    charts = [curves.metric_chart(runs, metric) for metric in runs[0].metrics]
    return [chart for chart in [*charts, curves.params_chart(runs)] if chart]


def breakable(text: str) -> Markup:
    """Returns a name that may be broken into lines after a joint, never inside a word.

    >>> str(breakable("embedding+rnn.l1"))
    'embedding+<wbr>rnn.<wbr>l1'
    """
    parts = re.split(r"(?<=[+./_,:=\\-])(?=\w)", str(text))
    return Markup("<wbr>").join(escape(part) for part in parts)


def _distinct(runs: Sequence[Run]) -> list[Run]:
    """Gives runs of the same name the name of their parent folder too, or else a number."""
    same = Counter(run.name for run in runs)
    named = [
        replace(run, name=f"{run.folder.resolve().parent.name}/{run.name}")
        if same[run.name] > 1
        else run
        for run in runs
    ]
    seen: Counter[str] = Counter()
    distinct = []
    for run in named:
        seen[run.name] += 1
        number = seen[run.name]
        distinct.append(run if number == 1 else replace(run, name=f"{run.name} ({number})"))
    return distinct
