"""thinrnn publish: finished runs as files that anybody may read."""

from pathlib import Path
from typing import Annotated

import typer

from thinrnn.lab.cli.options import Json
from thinrnn.lab.command import command


def publish(
    runs: Annotated[list[Path], typer.Argument(help="Finished run folders.")],
    to: Annotated[Path, typer.Option(help="Folder for the JSON files.")] = Path("results"),
    name: Annotated[
        str | None, typer.Option(help="Name of the result; else the preset's, with the seed.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="PRECISION",
            help="Also store the small model: float32, float16 or int8; it is measured again.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with *valid*.txt and *test*.txt to measure on.")
    ] = None,
    control: Annotated[
        Path | None, typer.Option(help="Run folder of a control that was trained beside the run.")
    ] = None,
    json: Json = False,
) -> None:
    """Write what runs found to one JSON file each: curves, figures, settings, no local paths.

    Beside a folder that has a RESULTS.md, that page and the README's table are written again.
    """
    from thinrnn.lab.cli.output import progress, show
    from thinrnn.lab.run import InputError, RunFolder
    from tools.results.page import write_pages
    from tools.results.publish import publish as write

    if name is not None and len(runs) > 1:
        raise InputError("--name is for one run: publish several without it.")
    if control is not None and len(runs) > 1:
        raise InputError("--control is for one run: publish several without it.")
    if store not in (None, "float32", "float16", "int8"):
        raise InputError(f"--store is '{store}', but must be float32, float16 or int8.")
    opened = [RunFolder(run) for run in runs]
    beside = None if control is None else RunFolder(control)
    with progress(json) as shown:
        written = [
            write(
                run,
                to,
                name=name or "",
                precision=store,  # type: ignore[arg-type]
                data=data,
                control=beside,
                progress=shown,
            )
            for run in opened
        ]
    root = to.resolve().parent
    if (root / "RESULTS.md").exists():
        written += write_pages(root)
    names = ", ".join(map(str, written))
    next_ = (
        command("eval", to / "models" / written[0].stem, "--data", "DIR")
        if store
        else command("report", runs[0])
    )
    result = {"written": [str(path) for path in written]}
    show(result, "", f"wrote {names}; next: {next_}", as_json=json)
