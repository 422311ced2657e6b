"""From a folder with squad/ and glove/ to numbers: once, then from a cache."""

import functools
import hashlib
import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from pydantic_core import from_json
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from thinrnn._files import cache_folder, write_safely
from thinrnn.lab.data.corpora import digest
from thinrnn.lab.recipes.squad.batches import Batches, Inputs
from thinrnn.lab.recipes.squad.data import Split, Types, encode
from thinrnn.lab.recipes.squad.glove import find_glove, read_glove
from thinrnn.lab.recipes.squad.reading import Paragraph, read_squad
from thinrnn.lab.recipes.squad.vocabulary import (
    SquadVocabulary,
    Tables,
    make_tables,
    make_vocabulary,
)
from thinrnn.lab.run.errors import InputError, StorageError
from thinrnn.lab.run.files import storage
from thinrnn.lab.run.progress import Progress

FORMAT = 1  # of the cache, and of everything that decides what is in it


@dataclass(frozen=True)
class Files:
    """The files of a data folder."""

    train: Path | None
    dev: Path
    glove: Path


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything that a run reads."""

    vocabulary: SquadVocabulary
    tables: Tables
    train: Split
    dev: Split
    notes: tuple[str, ...]  # what was found, and what was wrong, in lines to print
    fingerprint: str

    def facts(self) -> dict[str, Any]:
        """Return what config.json keeps of the data."""
        return {
            "train_questions": len(self.train),
            "dev_questions": len(self.dev),
            "trained_words": len(self.vocabulary.words),
            "characters": len(self.vocabulary.characters),
            "sha256": self.fingerprint,
        }

    @functools.lru_cache(maxsize=2)  # noqa: B019 -- an object for each run, not for each call
    def dev_batches(self, device: torch.device) -> Batches:
        """Return the questions of dev on a device, moved there once."""
        return Batches(self.dev, self.tables, device)

    def example(self) -> Inputs:
        """Return the inputs for some questions of dev."""
        batches = self.dev_batches(torch.device("cpu"))
        return batches.take(torch.arange(min(4, len(self.dev))))


def find_files(folder: Path, *, train: bool = True, size: int | None = None) -> Files:
    """Return the files of a folder that holds squad/ and glove/."""
    if not (folder / "squad").is_dir() or not (folder / "glove").is_dir():
        raise InputError(
            f"{folder} must hold squad/ (train-v1.1.json, dev-v1.1.json) and glove/ (a GloVe file)."
        )

    def one(part: str) -> Path:
        found = sorted((folder / "squad").glob(f"{part}*.json*"))
        if not found:
            raise InputError(f"{folder / 'squad'} has no {part}-v1.1.json (or .json.gz).")
        return found[0]

    return Files(one("train") if train else None, one("dev"), find_glove(folder / "glove", size))


def prepare(
    folder: Path,
    *,
    more_than: int = 10,
    characters_more_than: int = 50,
    held_out: float = 0.0,
    cache: Path | None = None,
    progress: Progress,
) -> Prepared:
    """Return the data of a folder, from the cache if it was prepared before, and describe it.

    With `held_out`, the last part of the training paragraphs stands in for dev, which is not read.
    """
    files = find_files(folder)
    settings = (more_than, characters_more_than, *([held_out] if held_out else []))
    key = _key(files, *settings)
    path = (cache or cache_folder()) / f"squad-{key[:16]}.safetensors"
    prepared = read_cache(path, key)
    if prepared is None:
        progress.line(f"reading {folder}")
        prepared = _prepare(files, more_than, characters_more_than, held_out, key)
        try:
            write_cache(path, prepared)
        except StorageError as error:
            progress.line(f"not kept for the next time: {error}")
    for note in prepared.notes:
        progress.line(note)
    return prepared


def _prepare(
    files: Files, more_than: int, characters_more_than: int, held_out: float, key: str
) -> Prepared:
    types = Types()
    notes: list[str] = []
    assert files.train is not None
    paragraphs = _read("train", files.train, notes)
    learned = len(paragraphs) - math.ceil(held_out * len(paragraphs))
    train = _encode("train", paragraphs[:learned], types, notes, keep_texts=False)
    tokens = list(types.numbers)
    numbers = torch.cat([train.context, train.question])
    counts = torch.bincount(numbers, minlength=len(tokens)).tolist()
    judged = paragraphs[learned:] if held_out else _read("dev", files.dev, notes)
    dev = _encode("held out" if held_out else "dev", judged, types, notes, keep_texts=True)
    glove, vectors = read_glove(files.glove, {token.lower() for token in types.numbers})
    vocabulary = make_vocabulary(
        dict(zip(tokens[1:], counts[1:], strict=True)),
        glove,
        more_than=more_than,
        characters_more_than=characters_more_than,
    )
    notes.append(
        f"words: {len(glove):,} in GloVe ({vectors.shape[1]} numbers each), "
        f"{len(vocabulary.words):,} with trained rows; {len(vocabulary.characters)} characters"
    )
    tables = make_tables(types.numbers, vocabulary, glove, vectors)
    return Prepared(vocabulary, tables, train, dev, tuple(notes), key)


def _read(part: str, path: Path, notes: list[str]) -> list[Paragraph]:
    paragraphs, problems = read_squad(path)
    notes += [f"{part}: {count:,} x left out: {text}" for text, count in sorted(problems.items())]
    return paragraphs


def _encode(
    part: str, paragraphs: list[Paragraph], types: Types, notes: list[str], *, keep_texts: bool
) -> Split:
    found, wrong = encode(paragraphs, types, keep_texts=keep_texts)
    notes.append(f"{part}: {len(found):,} questions about {len(paragraphs):,} paragraphs")
    notes += [f"{part}: {count:,} x an answer {text}" for text, count in sorted(wrong.items())]
    lost = int((found.answer[:, 0] < 0).sum())
    notes.append(f"{part}: {lost:,} questions have no answer that could be mapped to tokens")
    return found


def _key(files: Files, *settings: Any) -> str:
    assert files.train is not None
    hashes = [digest(path) for path in (files.train, files.dev, files.glove)]
    return hashlib.sha256(json.dumps([FORMAT, hashes, settings]).encode()).hexdigest()


def write_cache(path: Path, prepared: Prepared) -> None:
    """Write prepared data so that it is there whole or not at all."""
    tensors = {f"tables.{f.name}": getattr(prepared.tables, f.name) for f in fields(Tables)}
    texts: dict[str, Any] = {
        **prepared.vocabulary.model_dump(),
        "notes": prepared.notes,
        "fingerprint": prepared.fingerprint,
    }
    for part in ("train", "dev"):
        for f in fields(Split):
            value = getattr(getattr(prepared, part), f.name)
            (tensors if isinstance(value, Tensor) else texts)[f"{part}.{f.name}"] = value
    packed = json.dumps(texts, ensure_ascii=False).encode()
    tensors["texts"] = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
    with storage(path):
        write_safely(path, lambda temporary: save_file(tensors, temporary))


def read_cache(path: Path, key: str) -> Prepared | None:
    """Return what was prepared, or None where that is not there or not whole."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        texts = from_json(tensors.pop("texts").numpy().tobytes())
        if texts["fingerprint"] != key:
            return None
        train, dev = (
            Split(**{f.name: (tensors | texts)[f"{part}.{f.name}"] for f in fields(Split)})
            for part in ("train", "dev")
        )
        vocabulary = SquadVocabulary.model_validate(texts, strict=False)
        tables = Tables(**{f.name: tensors[f"tables.{f.name}"] for f in fields(Tables)})
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return None  # it is made again
    return Prepared(vocabulary, tables, train, dev, tuple(texts["notes"]), key)
