"""thinrnn bench: models timed side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thinrnn.lab.bench.wanted import Wanted
from thinrnn.lab.cli.options import Json
from thinrnn.lab.command import command

if TYPE_CHECKING:
    from thinrnn.lab.cli.find_model import Found


def bench(
    paths: Annotated[list[Path], typer.Argument(help="Run folders, or folders with models.")],
    batch: Annotated[int, typer.Option(min=1, help="Streams side by side.")] = 10,
    steps: Annotated[int, typer.Option(min=1, help="Steps per stream and call.")] = 30,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BATCHxSTEPS",
            help="Instead of --batch and --steps, once or more; 1x1 is a stream, with warm caches "
            "and with cold ones.",
        ),
    ] = None,
    threads: Annotated[str, typer.Option(help="CPU threads; several as in 1,2.")] = "1",
    runtimes: Annotated[
        str | None,
        typer.Option(help="Some of eager,compiled,onnx,int8,best, or all; without it, eager."),
    ] = None,
    dense: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE",
            help="Size of the dense model where there is none, like 1500-1500-1500; it is "
            "untrained. Without it, the size that recipe.json tells.",
        ),
    ] = None,
    valid: Annotated[
        Path | None,
        typer.Option(help="Text on which to measure perplexity in ONNX Runtime, float32 and int8."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
    seconds: Annotated[float, typer.Option(min=0, help="How long to time each model.")] = 3.0,
    json: Json = False,
) -> None:
    """Time models on the CPU, interleaved; medians, spread and ratios.

    With --runtimes, --shape, --dense, --valid, --out or several --threads, language models are
    compared across runtimes, each runtime in a process of its own, with file size and memory.
    """
    from thinrnn.lab.run import InputError

    counts = threads.split(",")
    if not all(count.isdigit() and int(count) for count in counts):
        raise InputError(f"--threads is '{threads}', but must be numbers above 0 like 1,2.")
    numbers = [int(count) for count in counts]
    if runtimes or shape or dense or valid or out or len(numbers) > 1:
        from thinrnn.lab.bench.full import parse_runtimes, parse_shapes

        shapes = parse_shapes(shape or [f"{batch}x{steps}"])
        wanted = Wanted(parse_runtimes(runtimes or "eager"), numbers, shapes, seconds, valid)
        _compare(paths, wanted, dense, out, json)
    else:
        _time(paths, batch, steps, numbers[0], seconds, json)


def _time(
    paths: list[Path], batch: int, steps: int, threads: int, seconds: float, json: bool
) -> None:
    import dataclasses

    from thinrnn.lab import recipes
    from thinrnn.lab.cli.output import progress, show
    from thinrnn.lab.run.environment import environment
    from thinrnn.timing import benchmark

    found = _named(paths)
    loaded = {
        name: recipes.part(model.recipe, "load").load_model(model.folder)
        for name, model in found.items()
    }
    example = next(iter(loaded.values())).example(batch, steps)
    with progress(json) as shown:
        shown.line(f"timing {_models(len(loaded))}, about {round(seconds * len(loaded), 1):g} s")
        models = {name: item.model for name, item in loaded.items()}
        timing = benchmark(models, example, threads=threads, seconds=seconds)
    result = {
        "batch": batch,
        "steps": steps,
        "threads": threads,
        "models": {
            name: {**dataclasses.asdict(one), "speedup": timing.speedup(name)}
            for name, one in timing.items()
        },
        "environment": environment(),
    }
    title = f"batch {batch}, {steps} steps, {threads} thread{'s' if threads > 1 else ''}"
    of_a_run = next(iter(found.values())).run is not None
    words = ["report", paths[0]] if of_a_run else ["export", paths[0], "--onnx", "FILE"]
    last = f"timed {_models(len(loaded))}, nothing written; next: {command(*words)}"
    show(result, f"{title}\n{timing}", last, as_json=json)


def _compare(
    paths: list[Path], wanted: Wanted, dense: str | None, out: Path | None, json: bool
) -> None:
    from thinrnn.lab.bench.full import compare_folders
    from thinrnn.lab.bench.table import tables
    from thinrnn.lab.cli.output import progress, show
    from thinrnn.lab.run import InputError
    from thinrnn.lab.run.files import write_json

    found = _named(paths)
    for name, model in found.items():
        if model.recipe != "language_model":
            raise InputError(f"{name} is no language model: bench it without other options.")
    folders = {name: model.folder for name, model in found.items()}
    with progress(json) as shown:
        result = compare_folders(folders, wanted, dense=dense, progress=shown)
    last = (
        f"timed {_models(len(result['models']))}, nothing written; --out FILE.json keeps all this"
    )
    if out is not None:
        write_json(out, result)
        last = f"wrote {out}"
    show(result, tables(result), last, as_json=json)


def _models(count: int) -> str:
    return f"{count} model{'' if count == 1 else 's'}"


def _named(paths: list[Path]) -> "dict[str, Found]":
    from thinrnn.lab.cli.find_model import find_models

    named = {}
    for model in [model for path in paths for model in find_models(path)]:
        name = model.kind
        if len(paths) > 1:
            name = f"{model.folder.parent.name}/{name}" if model.run else str(model.folder)
        named[name if name not in named else str(model.folder)] = model
    return named
