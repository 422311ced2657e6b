"""thinrnn bench: models timed side by side."""

from pathlib import Path
from typing import Annotated

import typer

from thinrnn.cli.options import Json


def bench(
    paths: Annotated[list[Path], typer.Argument(help="Run folders, or folders with models.")],
    batch: Annotated[int, typer.Option(min=1, help="Streams side by side.")] = 10,
    steps: Annotated[int, typer.Option(min=1, help="Steps per stream and call.")] = 30,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    seconds: Annotated[float, typer.Option(min=0, help="How long to time each model.")] = 3.0,
    json: Json = False,
) -> None:
    """Time models on the CPU in one process, interleaved; medians, spread and ratios."""
    import dataclasses

    from thinrnn import recipes
    from thinrnn.benchmark import benchmark
    from thinrnn.cli.find_model import find_models
    from thinrnn.cli.output import progress, show
    from thinrnn.run.environment import environment

    found = [model for path in paths for model in find_models(path)]
    several = len(paths) > 1
    loaded = {}
    for model in found:
        name = model.kind
        if several:
            name = f"{model.folder.parent.name}/{name}" if model.run else str(model.folder)
        name = name if name not in loaded else str(model.folder)
        loaded[name] = recipes.part(model.recipe, "load").load_model(model.folder)
    example = next(iter(loaded.values())).example(batch, steps)
    with progress(json) as shown:
        shown.line(f"timing {len(loaded)} models, about {seconds * len(loaded):.0f} s")
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
    last = f"timed {len(loaded)} models, nothing written; next: thinrnn report {paths[0]}"
    show(result, f"{title}\n{timing}", last, as_json=json)
