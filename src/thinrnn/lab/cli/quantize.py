"""thinrnn quantize: an ONNX file with 8-bit weights."""

from pathlib import Path
from typing import Annotated

import typer

from thinrnn.lab.cli.options import Best, Force, Json, refuse_to_replace
from thinrnn.lab.command import command


def quantize(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="An ONNX file of 'thinrnn export'.")],
    out: Annotated[Path, typer.Option(help="ONNX file to write.")],
    per_row: Annotated[
        bool, typer.Option("--per-row", help="Use a scale per row: more exact, a little slower.")
    ] = False,
    valid: Annotated[
        Path | None, typer.Option(help="Text on which to measure perplexity before and after.")
    ] = None,
    max_loss: Annotated[
        float | None,
        typer.Option(
            min=0, help="Allowed rise of perplexity, else no file is written: 0.005 is 0.5 %."
        ),
    ] = None,
    best: Best = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write an ONNX file with 8-bit weights; list what was quantized and what was not.

    --valid measures perplexity before and after. It needs a streaming file with all logits; --best
    is applied afterwards.
    """
    import dataclasses

    from thinrnn.lab.cli.export import best_words_alone
    from thinrnn.lab.cli.output import progress, show
    from thinrnn.lab.recipes.language_model.onnx_model import measure_on
    from thinrnn.lab.run import InputError
    from thinrnn.onnx import quantize_onnx

    if not path.is_file():
        raise InputError(
            f"{path} is not a file: make one with '{command('export', 'RUN', '--out', path)}'."
        )
    if max_loss is not None and valid is None:
        raise InputError("--max-loss needs a text to measure on: give --valid FILE.")
    refuse_to_replace(force, out)
    with progress(json) as shown:
        measure = None
        if valid is not None:
            shown.line(f"measuring {path} on {valid}, before and after")
            measure = measure_on(valid, path)
        with best_words_alone(out, best) as file:
            done = quantize_onnx(path, file, per_row=per_row, measure=measure, max_loss=max_loss)
        done = dataclasses.replace(done, path=out, bytes=out.stat().st_size)
    result = {**dataclasses.asdict(done), "path": str(done.path), "loss": done.loss}
    last = f"wrote {out}; next: use it in ONNX Runtime in place of {path}"
    show(result, str(done), last, as_json=json)
