"""Write the pages of this repository, or publish finished runs.

python -m tools.results                                   write RESULTS.md and the tables
python -m tools.results publish runs/ptb-paper --store int8
python -m tools.results store squad-thin --precision int8 --data data
"""

import argparse
import json
import sys
from pathlib import Path

from thinrnn.errors import ThinRNNError
from thinrnn.lab.run import InputError, RunFolder
from thinrnn.lab.run.progress import shown_on
from tools.results.pages import write_pages
from tools.results.publish import publish, store_again

PRECISIONS = ("float32", "float16", "int8")


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 2 for bad input, with one line on stderr."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "publish":
            _publish(options)
        elif options.command == "store":
            _store(options)
        else:
            changed = write_pages(Path())
            print(f"wrote {_names(changed)}" if changed else "all pages are up to date")
    except ThinRNNError as error:
        print(f"tools.results: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _publish(options: argparse.Namespace) -> None:
    """Write the results of runs; then the pages of the repository that they belong to."""
    for name in ("name", "control"):
        if getattr(options, name) and len(options.runs) > 1:
            raise InputError(f"--{name} works with one run: publish the others separately.")
    runs = [RunFolder(run) for run in options.runs]
    control = None if options.control is None else RunFolder(options.control)
    with shown_on(sys.stderr if options.json else sys.stdout) as progress:
        written = [
            publish(
                run,
                options.to,
                name=options.name,
                precision=options.store,
                data=options.data,
                control=control,
                progress=progress,
            )
            for run in runs
        ]
    root = options.to.resolve().parent
    if (root / "RESULTS.md").exists():
        written += write_pages(root)
    if options.json:
        print(json.dumps({"written": [str(path) for path in written]}, indent=1))
    else:
        print(f"wrote {_names(written)}")


def _store(options: argparse.Namespace) -> None:
    """Store published models in another precision; then write the pages."""
    with shown_on(sys.stdout) as progress:
        for name in options.names:
            precision, data = options.precision, options.data
            store_again(name, options.to, precision=precision, data=data, progress=progress)
    write_pages(options.to.resolve().parent)


def _names(paths: list[Path]) -> str:
    return ", ".join(map(str, paths))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.results", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command")
    command = commands.add_parser(
        "publish", help="write each run to one JSON file without local paths"
    )
    command.add_argument("runs", type=Path, nargs="+", help="finished run folders")
    command.add_argument("--to", type=Path, default=Path("results"), help="folder of the results")
    command.add_argument("--name", default="", help="default: the preset's name, with the seed")
    command.add_argument(
        "--store",
        choices=PRECISIONS,
        help="also store the small model in this precision and measure it again",
    )
    command.add_argument("--data", type=Path, help="folder with the texts to measure it on")
    command.add_argument("--control", type=Path, help="run folder of a separately trained control")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    again = commands.add_parser("store", help="store published models in another precision")
    again.add_argument("names", nargs="+", help="names of published runs with a stored model")
    again.add_argument("--to", type=Path, default=Path("results"), help="folder of the results")
    again.add_argument("--precision", choices=PRECISIONS, required=True)
    again.add_argument("--data", type=Path, required=True, help="folder with the texts")
    return parser


if __name__ == "__main__":
    sys.exit(main())
