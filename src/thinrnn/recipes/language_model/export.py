"""A language model as an ONNX file, with its vocabulary beside it."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from thinrnn.export import Export, export_onnx
from thinrnn.recipes.language_model.data import Vocabulary
from thinrnn.recipes.language_model.load import load_model
from thinrnn.run.files import write_json


def export_model(
    folder: str | Path,
    path: str | Path,
    *,
    streaming: bool = True,
    metadata: dict[str, Any] | None = None,
) -> Export:
    """Write the model of a folder as ONNX and vocabulary.json beside it; return what was checked.

    The outputs are logits; the file knows the hash of its vocabulary, and what `metadata` says.
    """
    loaded = load_model(folder)
    words = describe(loaded.vocabulary)
    about = {"recipe": "language_model", "vocabulary": vocabulary_hash(words), **(metadata or {})}
    tokens = loaded.example(batch=2, steps=3)
    export = export_onnx(loaded.model, path, tokens, streaming=streaming, metadata=about)
    write_json(Path(path).parent / "vocabulary.json", words)
    return export


def describe(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return what vocabulary.json holds: how text is split, and the tokens in their order."""
    return {**dataclasses.asdict(vocabulary.splitting), "tokens": list(vocabulary.tokens)}


def vocabulary_hash(words: dict[str, Any]) -> str:
    """Return the SHA-256 of a vocabulary, the same wherever it was written."""
    text = json.dumps(words, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
