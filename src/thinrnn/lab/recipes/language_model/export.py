"""A language model as an ONNX or C file, with its vocabulary beside it."""

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from thinrnn.c.export import CExport, Precision, export_c
from thinrnn.edge import EdgeExport, export_executorch, export_litert
from thinrnn.errors import ExportError, MissingExtraError
from thinrnn.lab.recipes.language_model.data import Vocabulary
from thinrnn.lab.recipes.language_model.load import load_model
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.run.files import write_json
from thinrnn.lab.run.progress import Progress
from thinrnn.onnx import Export, export_onnx
from thinrnn.onnx.runtime import OnnxFile, require_onnx


def export_model(
    folder: str | Path,
    path: str | Path,
    *,
    streaming: bool = True,
    metadata: dict[str, Any] | None = None,
) -> Export:
    """Write the model of a folder as ONNX and vocabulary.json beside it; return what was checked.

    The outputs are logits; the file holds the hash of its vocabulary and the `metadata`.
    """
    loaded = load_model(folder)
    words = describe(loaded.vocabulary)
    about = {"recipe": "language_model", "vocabulary": vocabulary_hash(words), **(metadata or {})}
    tokens = loaded.example(batch=2, steps=3)
    export = export_onnx(loaded.model, path, tokens, streaming=streaming, metadata=about)
    write_json(Path(path).parent / "vocabulary.json", words)
    return export


def export_c_model(
    folder: str | Path, path: str | Path, *, precision: Precision = "float32"
) -> CExport:
    """Write the model of a folder as a C file and vocabulary.json beside it."""
    loaded = load_model(folder)
    tokens = loaded.example(batch=2, steps=3)
    export = export_c(loaded.model, path, tokens, precision=precision)
    write_json(Path(path).parent / "vocabulary.json", describe(loaded.vocabulary))
    return export


def export_edge_model(
    folder: str | Path, path: str | Path, *, runtime: str, precision: Precision = "float32"
) -> EdgeExport:
    """Write one step of a folder's model for a runtime, and vocabulary.json beside it."""
    loaded = load_model(folder)
    write = export_executorch if runtime == "executorch" else export_litert
    tokens = loaded.example(batch=1, steps=3)
    export = write(loaded.model, path, tokens, streaming=True, precision=precision)
    write_json(Path(path).parent / "vocabulary.json", describe(loaded.vocabulary))
    return export


def describe(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return what vocabulary.json holds: how text is split, and the tokens in their order."""
    return {**dataclasses.asdict(vocabulary.splitting), "tokens": list(vocabulary.tokens)}


def vocabulary_hash(words: dict[str, Any]) -> str:
    """Return the SHA-256 of a vocabulary, the same wherever it was written."""
    text = json.dumps(words, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def onnx_calls(
    folders: dict[str, Path], settings: LanguageModelSettings, progress: Progress
) -> dict[str, tuple[Callable[[Tensor], Any], float]]:
    """Return the dense and the small model in ONNX Runtime, each with how far it is from PyTorch.

    The small one stays in its folder as model.onnx. Nothing is returned where the extra `onnx` is
    not installed or a model cannot be exported; a line of progress gives the reason.
    """
    calls: dict[str, tuple[Callable[[Tensor], Any], float]] = {}
    if not settings.bench_seconds:
        progress.line("not timed in ONNX Runtime, since bench_seconds is 0")
        return calls
    try:
        require_onnx()
    except MissingExtraError as error:
        progress.line(f"not timed in ONNX Runtime: {error}")
        return calls
    for kind in ("dense", "small"):
        if kind not in folders:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            place = folders[kind] if kind == "small" else Path(temporary)
            try:
                export = export_model(folders[kind], place / "model.onnx")
            except ExportError as error:
                progress.line(f"{kind} model not timed in ONNX Runtime: {error}")
                continue
            calls[kind] = (
                _call(OnnxFile(export.path, threads=settings.bench_threads)),
                export.difference,
            )
    return calls


def _call(file: OnnxFile) -> Callable[[Tensor], Any]:
    def call(tokens: Tensor) -> Any:
        return file({"tokens": tokens.numpy(), **file.first_states(tokens.shape[1])})

    return call
