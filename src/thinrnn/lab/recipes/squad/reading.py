"""SQuAD v1.1 files, plain or gzipped, as paragraphs with questions; what is wrong is counted."""

import contextlib
import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WrapValidator, model_validator
from pydantic_core import PydanticOmit, from_json
from pydantic_core.core_schema import ValidationInfo

from thinrnn._files import MOST_BYTES, open_regular
from thinrnn.lab.run.errors import InputError


def usable(what: str) -> WrapValidator:
    """Leave a record out of its list if it cannot be used; count why in the context."""

    def check(record: Any, validate: Callable[[Any], Any], info: ValidationInfo) -> Any:
        try:
            return validate(record)
        except ValidationError as error:
            problem = error.errors()[0]
            name = "answer" if len(problem["loc"]) > 1 else what
            field = problem["loc"][-1] if problem["loc"] else 0
            why = f"without '{field}'" if isinstance(field, str) else "that is no object"
            if problem["type"] == "value_error":
                why = problem["msg"].removeprefix("Value error, ")
            info.context[f"{name} {why}"] += 1  # type: ignore[index]
            raise PydanticOmit from None

    return WrapValidator(check)


class SquadRecord(BaseModel):
    """A part of a SQuAD file; it may have more fields."""

    model_config = ConfigDict(strict=True, frozen=True)


class ReferenceAnswer(SquadRecord):
    """A reference answer and the character of the context where it begins."""

    text: str
    start: int = Field(alias="answer_start")


class Question(SquadRecord):
    """A question about a paragraph."""

    id: str
    text: str = Field(alias="question")
    answers: list[ReferenceAnswer]

    @model_validator(mode="after")
    def _can_be_answered(self) -> Self:
        if not self.answers:
            raise ValueError("without an answer")
        if not self.text.strip():
            raise ValueError("without text")
        return self


class Paragraph(SquadRecord):
    """A text with the questions about it."""

    context: str
    questions: list[Annotated[Question, usable("question")]] = Field(alias="qas")


class Article(SquadRecord):
    """Paragraphs from one source."""

    paragraphs: list[Annotated[Paragraph, usable("paragraph")]]


class SquadFile(SquadRecord):
    """A whole file."""

    data: list[Annotated[Article, usable("article")]]


def read_squad(path: Path) -> tuple[list[Paragraph], Counter[str]]:
    """Return the paragraphs of a file, and how many records were left out, by reason."""
    problems: Counter[str] = Counter()
    try:
        with unpacked(path) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InputError(
                f"{path} holds more than {MOST_BYTES:,} bytes: give a SQuAD v1.1 file."
            )
        found = SquadFile.model_validate(from_json(content), context=problems)
    except ValidationError:
        raise InputError(f"{path} is not a SQuAD file: it has no list 'data'.") from None
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON ({error}): give a SQuAD v1.1 file.") from None
    paragraphs = [paragraph for article in found.data for paragraph in article.paragraphs]
    if not any(paragraph.questions for paragraph in paragraphs):
        why = "; ".join(f"{count} {text}" for text, count in problems.items())
        raise InputError(f"{path} has no question that can be used{why and f': {why}'}.")
    return paragraphs, problems


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[BufferedReader | gzip.GzipFile]:
    """Open a file for reading, unpacked if it is gzipped; damage may show on the way."""
    try:
        with open_regular(path, InputError) as file:
            is_packed = file.peek(2)[:2] == b"\x1f\x8b"
            yield gzip.GzipFile(fileobj=file) if is_packed else file
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(f"{path} is cut off or damaged: fetch it again.") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
