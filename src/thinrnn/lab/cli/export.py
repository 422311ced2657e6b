"""thinrnn export: a model as a file that runs without torch."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thinrnn.lab.cli.options import Best, Json, Kind, ModelPath
from thinrnn.lab.command import command

if TYPE_CHECKING:
    from thinrnn.c.export import CExport
    from thinrnn.edge import EdgeExport
    from thinrnn.lab.cli.find_model import Found
    from thinrnn.onnx import Export

FORMATS = {"onnx": ".onnx", "c": ".c", "executorch": ".pte", "litert": ".tflite"}
QUALITY = ("valid_perplexity", "test_perplexity", "em", "f1")  # stored in the file


def export(
    path: ModelPath,
    out: Annotated[Path, typer.Option("--out", "--onnx", help="File to write.")],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="onnx, c, executorch or litert; default: by the ending of FILE (.c, .pte, "
            ".tflite), else onnx.",
        ),
    ] = None,
    streaming: Annotated[
        bool,
        typer.Option("--streaming", help="States are inputs and outputs, to run in chunks."),
    ] = False,
    best: Best = None,
    precision: Annotated[
        str,
        typer.Option(metavar="PRECISION", help="float32 or int8; for ONNX use quantize."),
    ] = "float32",
    kind: Kind = "small",
    json: Json = False,
) -> None:
    """Write a model for ONNX Runtime, ExecuTorch or LiteRT or as plain C, and compare the file.

    An ONNX file takes any batch size and any number of steps. The others run one step at a time. If
    outputs differ from PyTorch by more than 1e-4, no file is written.
    """
    import dataclasses

    from thinrnn.lab.cli.find_model import find_model
    from thinrnn.lab.cli.output import progress, show

    to = to or next((name for name, end in FORMATS.items() if out.suffix == end), "onnx")
    _check_options(to, streaming=streaming, best=best, precision=precision)
    found = find_model(path, kind)
    with progress(json) as shown:
        shown.line(f"exporting {found.folder}")
        done: CExport | EdgeExport | Export
        if to == "c":
            done, next_ = _to_c(found, out, precision), f"cc -O3 -std=c99 -c {out}"
        elif to in ("executorch", "litert"):
            done = _to_edge(found, out, to, precision)
            next_ = command("bench", found.folder, "--runtimes", f"eager,{to}", "--shape", "1x1")
        else:
            done = _to_onnx(found, out, streaming, best)
            next_ = command("quantize", out, "--out", out.with_name(out.stem + ".int8.onnx"))
    result = {**dataclasses.asdict(done), "path": str(done.path), "model": str(found.folder)}
    last = f"wrote {out} and {out.parent / 'vocabulary.json'}; next: {next_}"
    show(result, str(done), last, as_json=json)


def _check_options(to: str, *, streaming: bool, best: int | None, precision: str) -> None:
    """Refuse an unknown format, and options that a format does not have."""
    from thinrnn.lab.run.errors import InputError

    if to not in FORMATS:
        raise InputError(f"there is no format '{to}': give --to {', '.join(FORMATS)}.")
    if precision not in ("float32", "int8"):
        raise InputError(f"--precision is '{precision}', but must be float32 or int8.")
    if to != "onnx" and (streaming or best):
        raise InputError(
            f"a file for {to} is always a stream, with all logits: leave out --streaming or --best."
        )
    if to == "onnx" and precision != "float32":
        raise InputError("--precision is not for ONNX: use 'thinrnn quantize' on the ONNX file.")


def _to_c(found: "Found", out: Path, precision: Any) -> "CExport":
    from thinrnn.lab import recipes

    recipes.require_recipe(found.recipe, "language_model")
    return recipes.language_model_recipe().export_c(found.folder, out, precision=precision)


def _to_edge(found: "Found", out: Path, to: str, precision: Any) -> "EdgeExport":
    from thinrnn.lab import recipes

    recipes.require_recipe(found.recipe, "language_model")
    write = recipes.language_model_recipe().export_edge
    return write(found.folder, out, runtime=to, precision=precision)


def _to_onnx(found: "Found", out: Path, streaming: bool, best: int | None) -> "Export":
    import dataclasses

    from thinrnn.lab import recipes
    from thinrnn.onnx.runtime import OnnxFile

    recipe = recipes.recipe(found.recipe)
    about = {name: value for name, value in found.figures().items() if name in QUALITY}
    with best_words_alone(out, best) as file:
        done = recipe.export(found.folder, file, streaming=streaming, metadata=about)
    if best is None:
        return done
    outputs = {name: tuple(value.shape) for name, value in OnnxFile(out).outputs.items()}
    return dataclasses.replace(done, path=out, bytes=out.stat().st_size, outputs=outputs)


@contextlib.contextmanager
def best_words_alone(path: Path, k: int | None) -> Iterator[Path]:
    """Yield where to write a file with all logits; after `with`, `path` has the k best words.

    If that fails, `path` stays as it was. Without k the file is written to `path` directly.
    """
    from thinrnn.onnx import top_k_onnx

    if k is None:
        yield path
        return
    whole = path.with_name(f".{path.name}.whole")
    try:
        yield whole
        top_k_onnx(whole, path, k=k)
    finally:
        whole.unlink(missing_ok=True)
