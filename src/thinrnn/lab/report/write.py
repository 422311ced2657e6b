"""Puts the report together and on disk."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from thinrnn._files import write_safely
from thinrnn.errors import RunError
from thinrnn.lab.report.headline import header, headline
from thinrnn.lab.report.model import bars, matrices
from thinrnn.lab.report.page import page
from thinrnn.lab.report.read import Run, read_run
from thinrnn.lab.report.setup import setup
from thinrnn.lab.report.svg import tag
from thinrnn.lab.report.tradeoff import tradeoff
from thinrnn.lab.report.training import curves, gates


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Writes one HTML file about one or several run folders and returns its path.

    The first folder is the one that is shown in full; the others join it in the trade-off charts
    and the configuration. A run in progress shows what it has, and its page loads itself again
    every ten seconds. Without `out` the file is report.html in the first folder.

        write_report([Path("runs/demo")])
    """
    if not folders:
        raise RunError("no run folder was given; `thinrnn list` shows the runs that are there")
    runs = _distinct([read_run(Path(folder)) for folder in folders])
    main = runs[0]
    body = tag(
        "main",
        "\n".join(
            [
                header(main),
                headline(main),
                gates(main),
                curves(main),
                matrices(main),
                bars(main),
                tradeoff(runs),
                setup(runs),
            ]
        ),
    )
    text = page(f"{main.name} · thinrnn", body, refresh=main.is_running and not main.finished)
    path = Path(out) if out is not None else main.folder / "report.html"
    try:
        # What is not UTF-8 in a folder's name arrives as lone surrogates, which no file can hold.
        data = text.encode("utf-8", errors="replace")
        write_safely(path, lambda temporary: temporary.write_bytes(data))
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}; name another file") from error
    return path


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
