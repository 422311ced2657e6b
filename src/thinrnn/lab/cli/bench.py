"""thinrnn bench: models timed side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thinrnn.lab.cli.options import Json
from thinrnn.lab.command import command

if TYPE_CHECKING:
    from thinrnn.lab.cli.find_model import Found


def bench(
    paths: Annotated[
        list[Path], typer.Argument(metavar="MODEL", help="Run folders, or folders with models.")
    ],
    batch: Annotated[int, typer.Option(min=1, help="Sequences in a call.")] = 10,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each sequence in a call.")] = 30,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BATCHxSTEPS",
            help="Replaces --batch and --steps, may be given many times; 1x1 is a stream, timed "
            "with warm caches and with cold ones.",
        ),
    ] = None,
    threads: Annotated[str, typer.Option(help="CPU threads; several as in 1,2.")] = "1",
    runtimes: Annotated[
        str | None,
        typer.Option(
            help="Some of eager,compiled,onnx,int8,best,c, or all; default eager,onnx, for "
            "readers eager."
        ),
    ] = None,
    dense: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="Compare with an untrained dense model of these sizes, like 1500-1500-1500; "
            "where there is no dense model, the default is the size before pruning.",
        ),
    ] = None,
    valid: Annotated[
        Path | None,
        typer.Option(help="Text on which to measure perplexity in ONNX Runtime, float32 and int8."),
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Measure memory too, each model in its own process.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
    seconds: Annotated[
        float, typer.Option(min=0, help="How long to time each model in each runtime.")
    ] = 3.0,
    json: Json = False,
) -> None:
    """Time models on the CPU side by side, in PyTorch, ONNX Runtime and plain C.

    Each runtime has a process of its own. The headline compares the small model with the dense one
    in the same runtime: ONNX Runtime if it was timed.
    """
    from thinrnn.lab.bench.compare import compare_folders
    from thinrnn.lab.bench.request import Request, parse_runtimes, parse_shapes, parse_threads
    from thinrnn.lab.bench.table import tables
    from thinrnn.lab.cli.output import progress, show
    from thinrnn.lab.run import InputError
    from thinrnn.lab.run.files import write_json

    models = _by_name(paths)
    recipes = {model.recipe for model in models.values()}
    if len(recipes) > 1:
        raise InputError("these models do different things: time them one by one.")
    recipe = recipes.pop()
    is_text = recipe == "language_model"
    if not is_text and (runtimes not in (None, "eager") or dense or valid):
        raise InputError("--runtimes, --dense and --valid are for language models: leave them out.")
    request = Request(
        runtimes=parse_runtimes(runtimes or ("eager,onnx" if is_text else "eager")),
        threads=parse_threads(threads),
        shapes=parse_shapes(shape or [f"{batch}x{steps}"]),
        seconds=seconds,
        text=valid,
        dense=dense,
        memory=memory,
    )
    folders = {name: model.folder for name, model in models.items()}
    with progress(json) as shown:
        result = compare_folders(folders, recipe, request, shown)
    if out is not None:
        write_json(out, result)
    wrote = f"wrote {out}" if out else "wrote nothing (--out FILE.json would)"
    is_run = next(iter(models.values())).run is not None
    words = ("report", paths[0]) if is_run else ("export", paths[0], "--out", "model.onnx")
    show(result, tables(result), f"{wrote}; next: {command(*words)}", as_json=json)


def _by_name(paths: list[Path]) -> "dict[str, Found]":
    from thinrnn.lab.cli.find_model import find_models

    named: dict[str, Found] = {}
    for model in [model for path in paths for model in find_models(path)]:
        name = model.kind
        if len(paths) > 1:
            name = f"{model.folder.parent.name}/{name}" if model.run else str(model.folder)
        named[name if name not in named else str(model.folder)] = model
    return named
