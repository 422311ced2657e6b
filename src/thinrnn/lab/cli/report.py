"""thinrnn report: an HTML page about runs."""

from pathlib import Path
from typing import Annotated

import typer

from thinrnn.lab.cli.options import Json
from thinrnn.lab.command import command


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders.")],
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write; the default is report.html in the run.")
    ] = None,
    json: Json = False,
) -> None:
    """Write one HTML page about a run, or a comparison of several.

    It shows sizes, gates over time, learning curves and speed.
    """
    from thinrnn.lab.cli.output import show
    from thinrnn.lab.report import write_report
    from thinrnn.lab.run import RunFolder

    for run in runs:
        RunFolder(run)  # refuses what is not a run
    written = write_report(runs, out)
    last = f"wrote {written}; next: open it in a browser, or {command('bench', runs[0])}"
    show({"report": str(written)}, "", last, as_json=json)
