"""thinrnn export: a model as an ONNX file, which runs without torch."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from thinrnn.lab.cli.options import Best, Json, Kind, ModelPath
from thinrnn.lab.command import command

QUALITY = ("valid_perplexity", "test_perplexity", "em", "f1")  # stored in the file


def export(
    path: ModelPath,
    onnx: Annotated[Path, typer.Option("--onnx", help="ONNX file to write.")],
    streaming: Annotated[
        bool,
        typer.Option("--streaming", help="States are inputs and outputs, to run in chunks."),
    ] = False,
    best: Best = None,
    kind: Kind = "small",
    json: Json = False,
) -> None:
    """Write a model as an ONNX file and check it in ONNX Runtime.

    The file takes any batch size and any number of steps. It is compared with the model at several
    of them; if outputs differ by more than 1e-4, no file is written.
    """
    import dataclasses

    from thinrnn.lab import recipes
    from thinrnn.lab.cli.find_model import find_model
    from thinrnn.lab.cli.output import progress, show

    found = find_model(path, kind)
    recipe = recipes.recipe(found.recipe)
    about = {name: value for name, value in found.figures().items() if name in QUALITY}
    with progress(json) as shown:
        shown.line(f"exporting {found.folder}")
        with best_words_alone(onnx, best) as file:
            done = recipe.export(found.folder, file, streaming=streaming, metadata=about)
        if best is not None:
            given: dict[str, Any] = {
                "path": onnx,
                "bytes": onnx.stat().st_size,
                "outputs": outputs_of(onnx),
            }
            done = dataclasses.replace(done, **given)
    result = {**dataclasses.asdict(done), "path": str(done.path), "model": str(found.folder)}
    beside = onnx.parent / "vocabulary.json"
    next_ = command("quantize", onnx, "--out", onnx.with_name(onnx.stem + ".int8.onnx"))
    last = f"wrote {onnx} and {beside}; next: {next_}"
    show(result, str(done), last, as_json=json)


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


def outputs_of(path: Path) -> dict[str, tuple[int | str, ...]]:
    """Return the names and shapes of a file's outputs."""
    from thinrnn.onnx.runtime import OnnxFile

    return {name: tuple(value.shape) for name, value in OnnxFile(path).outputs.items()}
