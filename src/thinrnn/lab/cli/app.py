"""All commands. Heavy imports are inside the commands, so that --help is instant."""

import inspect
import re
from typing import Annotated

import typer

from thinrnn import __version__
from thinrnn.lab.cli.ask import ask
from thinrnn.lab.cli.bench import bench
from thinrnn.lab.cli.compact import compact
from thinrnn.lab.cli.data import data
from thinrnn.lab.cli.demo import demo
from thinrnn.lab.cli.doctor import doctor
from thinrnn.lab.cli.eval import evaluate
from thinrnn.lab.cli.export import export
from thinrnn.lab.cli.generate import generate
from thinrnn.lab.cli.list import list_all
from thinrnn.lab.cli.prune import prune
from thinrnn.lab.cli.quantize import quantize
from thinrnn.lab.cli.report import report
from thinrnn.lab.cli.sweep import sweep
from thinrnn.lab.cli.train import train

app = typer.Typer(
    name="thinrnn",
    help="Make recurrent networks thin: learn which neurons they need, remove the others.",
    epilog="Example: thinrnn demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(requested: bool) -> None:
    if requested:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Make recurrent networks thin: learn which neurons they need, remove the others."""


def _paragraphs(docstring: str | None) -> str:
    """Return a docstring with one line per paragraph, so that typer can wrap them."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(docstring or ""))


for name, function, example in (
    ("demo", demo, "thinrnn demo"),
    ("train", train, "thinrnn train lm --data book.txt --minutes 30 --set cell=gru"),
    ("sweep", sweep, "thinrnn sweep demo --space space.toml --trials 40 --workers 2"),
    ("list", list_all, "thinrnn list"),
    ("eval", evaluate, "thinrnn eval runs/demo"),
    ("bench", bench, "thinrnn bench runs/demo --batch 10 --steps 30 --threads 1"),
    ("report", report, "thinrnn report runs/demo runs/lm --out compare.html"),
    ("compact", compact, "thinrnn compact runs/demo --out thin --round-to 8"),
    ("prune", prune, "thinrnn prune runs/demo --params 0.5"),
    ("export", export, "thinrnn export runs/demo --out demo.onnx --streaming"),
    ("quantize", quantize, "thinrnn quantize demo.onnx --out small.onnx --valid b.txt"),
    ("generate", generate, 'thinrnn generate runs/demo --prompt "the value of"'),
    ("ask", ask, 'thinrnn ask runs/squad-paper --context a.txt --question "Who wrote it?"'),
    ("data", data, "thinrnn data ptb data/ptb"),
    ("doctor", doctor, "thinrnn doctor"),
):
    app.command(name, help=_paragraphs(function.__doc__), epilog=f"Example: {example}")(function)
