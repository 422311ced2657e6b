"""thinrnn report: one HTML file about one or several runs."""

from pathlib import Path
from typing import Annotated

import typer

from thinrnn.lab.cli.options import Json
from thinrnn.lab.command import command


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write; else report.html in the run.")
    ] = None,
    json: Json = False,
) -> None:
    """Write the report: sizes, gates over time, curves, speed; several runs are compared."""
    from thinrnn.lab.cli.output import show
    from thinrnn.lab.report import write_report
    from thinrnn.lab.run import RunFolder

    for run in runs:
        RunFolder(run)  # says what is wrong with it, if anything
    written = write_report(runs, out)
    last = f"wrote {written}; next: open it in a browser, or {command('bench', runs[0])}"
    show({"report": str(written)}, "", last, as_json=json)
