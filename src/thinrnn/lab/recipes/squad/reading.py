"""SQuAD v1.1 files, plain or gzipped, as paragraphs with questions; what is wrong is counted."""

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinrnn.lab.run.errors import InputError


@dataclass(frozen=True)
class ReferenceAnswer:
    """A reference answer and the character of the context where it begins."""

    text: str
    start: int


@dataclass(frozen=True)
class Question:
    """A question about a paragraph."""

    id: str
    text: str
    answers: tuple[ReferenceAnswer, ...]


@dataclass(frozen=True)
class Paragraph:
    """A text with the questions about it."""

    context: str
    questions: tuple[Question, ...]


class _BadField(Exception):
    """A record cannot be used; the message is the reason."""


def read_squad(path: Path) -> tuple[list[Paragraph], Counter[str]]:
    """Return the paragraphs of a file, and how many records were left out, by reason."""
    problems: Counter[str] = Counter()
    paragraphs = [
        Paragraph(context, tuple(_questions(record, problems)))
        for record, context in _paragraphs(_read(path), path, problems)
    ]
    if not any(paragraph.questions for paragraph in paragraphs):
        why = "; ".join(f"{count} {text}" for text, count in problems.items())
        raise InputError(f"{path} has no question that can be used{why and f': {why}'}.")
    return paragraphs, problems


def open_text(path: Path) -> bytes:
    """Return the bytes of a file, unpacked if it is gzipped."""
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: check the path.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(f"{path} is cut off or damaged: fetch it again.") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None


def _read(path: Path) -> Any:
    try:
        return json.loads(open_text(path))
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON ({error}): give a SQuAD v1.1 file.") from None


def _paragraphs(
    data: Any, path: Path, problems: Counter[str]
) -> Iterator[tuple[dict[str, Any], str]]:
    articles = data.get("data") if isinstance(data, dict) else None
    if not isinstance(articles, list):
        raise InputError(f"{path} is not a SQuAD file: it has no list 'data'.")
    for article in articles:
        try:
            records = _field(article, "paragraphs", list, "article")
        except _BadField as error:
            problems[str(error)] += 1
            continue
        for record in records:
            try:
                context = _field(record, "context", str, "paragraph")
                _field(record, "qas", list, "paragraph")
            except _BadField as error:
                problems[str(error)] += 1
                continue
            yield record, context


def _questions(record: dict[str, Any], problems: Counter[str]) -> Iterator[Question]:
    for entry in record["qas"]:
        try:
            text = _field(entry, "question", str, "question")
            name = _field(entry, "id", str, "question")
            answers = tuple(
                ReferenceAnswer(
                    _field(answer, "text", str, "answer"),
                    _field(answer, "answer_start", int, "answer"),
                )
                for answer in _field(entry, "answers", list, "question")
            )
        except _BadField as error:
            problems[str(error)] += 1
            continue
        if not answers:
            problems["question without an answer"] += 1
        elif not text.strip():
            problems["question without text"] += 1
        else:
            yield Question(name, text, answers)


def _field(record: Any, name: str, kind: type, what: str) -> Any:
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _BadField(f"{what} without '{name}'")
    return value
