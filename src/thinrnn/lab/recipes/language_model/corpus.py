"""Where the text of a run comes from: the user's files, or the corpus that every Python has."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from thinrnn.lab.recipes.language_model.data import (
    Splitting,
    Vocabulary,
    make_vocabulary,
    read_pieces,
    split_tokens,
)
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.run.errors import InputError

BUILT_IN = "pydoc"
PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class Text:
    """A corpus as numbers."""

    vocabulary: Vocabulary
    train: Tensor  # (N,) int32, like the others
    valid: Tensor
    test: Tensor | None

    def facts(self) -> dict[str, Any]:
        """Return what config.json keeps of the text."""
        return {
            "train_tokens": len(self.train),
            "valid_tokens": len(self.valid),
            "test_tokens": None if self.test is None else len(self.test),
            "vocabulary": len(self.vocabulary),
            "sha256": self.fingerprint(),
        }

    def example(self) -> Tensor:
        """Return some tokens of the validation text (T, 2)."""
        steps = min(35, len(self.valid) // 2)
        return self.valid[: 2 * steps].view(2, steps).t().long()

    def fingerprint(self) -> str:
        """Return a checksum of the vocabulary and every token."""
        digest = hashlib.sha256("\0".join(self.vocabulary.tokens).encode())
        for part in (self.train, self.valid, self.test):
            digest.update(b"-" if part is None else part.numpy().tobytes())
        return digest.hexdigest()


def load_text(settings: LanguageModelSettings) -> Text:
    """Return the corpus that the settings name, with the vocabulary of its training part."""
    sources = {part: getattr(settings, part) for part in PARTS}
    if not sources["train"]:
        raise InputError("no training text: give --train FILE and --valid FILE.")
    if not sources["valid"] and sources["train"] != BUILT_IN:
        raise InputError("no validation text: give --valid FILE.")
    splitting = Splitting(settings.level, settings.lower, settings.punctuation)

    def tokens(part: str) -> Iterator[str]:
        built_in = sources["train"] == BUILT_IN
        pieces = built_in_pieces(part) if built_in else read_pieces(sources[part])
        return split_tokens(pieces, splitting)

    vocabulary = make_vocabulary(
        tokens("train"),
        splitting,
        largest=settings.max_vocabulary,
        min_count=settings.min_count,
    )
    has_test = bool(sources["test"]) or sources["train"] == BUILT_IN
    train, valid = vocabulary.encode(tokens("train")), vocabulary.encode(tokens("valid"))
    test = vocabulary.encode(tokens("test")) if has_test else None
    return Text(vocabulary, train, valid, test)


def encode_file(path: str | Path, vocabulary: Vocabulary) -> Tensor:
    """Return a file as numbers of a vocabulary that exists."""
    return vocabulary.encode(split_tokens(read_pieces(path), vocabulary.splitting))


def encode_text(text: str, vocabulary: Vocabulary) -> Tensor:
    """Return a text as numbers; its last line is not ended."""
    lines = text.split("\n")
    found = [torch.empty(0, dtype=torch.int32)]
    for place, line in enumerate(lines):
        found.append(vocabulary.encode(vocabulary.splitting.tokens(line)))
        if place < len(lines) - 1:
            found.append(vocabulary.encode(["<eos>"]))
    return torch.cat(found)


def built_in_pieces(part: str) -> Iterator[str]:
    """Yield the language reference in CPython's pydoc_data.topics, one paragraph a line.

    Of every ten topics, in sorted order, the first is for validation and the sixth for the test.
    Some paragraphs are in several topics; what validation or test has is left out of training.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise InputError(
            "this Python has no pydoc_data.topics, the text of the demo: "
            "give your own with 'thinrnn train lm --train FILE --valid FILE'."
        ) from None
    lines: dict[str, list[str]] = {name: [] for name in PARTS}
    for place, name in enumerate(sorted(topics)):
        paragraphs = (" ".join(text.split()) for text in topics[name].split("\n\n"))
        role = {0: "valid", 5: "test"}.get(place % 10, "train")
        lines[role] += [paragraph for paragraph in paragraphs if paragraph]
    held_out = {*lines["valid"], *lines["test"]}
    lines["train"] = [line for line in lines["train"] if line not in held_out]
    for line in lines[part]:
        yield line + "\n"
