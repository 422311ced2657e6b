"""Where the text of a run comes from.

The user's files, the files in a folder, a public corpus, which is checked, or the text that every
Python has.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from thinrnn.lab.data.corpora import Corpus, corpus
from thinrnn.lab.recipes.language_model.data import (
    Splitting,
    Vocabulary,
    make_vocabulary,
    read_pieces,
    split_tokens,
)
from thinrnn.lab.recipes.language_model.evaluate import perplexity
from thinrnn.lab.recipes.language_model.held_out import held_out
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
            "unigram_perplexity": self.unigram_perplexity(),
            "sha256": self.fingerprint(),
        }

    def example(self) -> Tensor:
        """Return some tokens of the validation text (T, 2)."""
        steps = min(35, len(self.valid) // 2)
        return self.valid[: 2 * steps].view(2, steps).t().long()

    def counts(self) -> Tensor:
        """Return how often each token is in the training text."""
        return torch.bincount(self.train, minlength=len(self.vocabulary))

    def unigram_perplexity(self) -> float:
        """Return the perplexity of the validation text by the token counts of training, plus one.

        A model above this has learned nothing from the order of the tokens.
        """
        counts = self.counts().double() + 1
        surprise = -(counts / counts.sum()).log()
        return perplexity(surprise[self.valid].mean().item())

    def fingerprint(self) -> str:
        """Return a checksum of the vocabulary and every token."""
        digest = hashlib.sha256("\0".join(self.vocabulary.tokens).encode())
        for part in (self.train, self.valid, self.test):
            digest.update(b"-" if part is None else part.numpy().tobytes())
        return digest.hexdigest()


def load_text(settings: LanguageModelSettings) -> Text:
    """Return the corpus that the settings name, with the vocabulary of its training part.

    Without a validation text, parts of the training text are held out for validation and test.
    """
    splitting = Splitting(settings.level, settings.lower, settings.punctuation)

    def tokens(part: str) -> Iterator[str]:
        return split_tokens(pieces_of(settings, part), splitting)

    vocabulary = make_vocabulary(
        tokens("train"),
        splitting,
        largest=settings.max_vocabulary,
        min_count=settings.min_count,
    )
    has_test = bool(settings.test) or is_one_text(settings)
    train, valid = vocabulary.encode(tokens("train")), vocabulary.encode(tokens("valid"))
    test = vocabulary.encode(tokens("test")) if has_test else None
    return Text(vocabulary, train, valid, test)


def is_one_text(settings: LanguageModelSettings) -> bool:
    """Return whether the training text has the others in it."""
    return settings.train == BUILT_IN or not (settings.valid or settings.test)


def pieces_of(settings: LanguageModelSettings, part: str) -> Iterator[str]:
    """Yield the text of a part in pieces."""
    if not settings.train:
        raise InputError("no training text: give --data FILE, or --train FILE and --valid FILE.")
    if settings.train == BUILT_IN:
        return built_in_pieces(part)
    if is_one_text(settings):
        return iter([held_out("".join(read_pieces(settings.train)))[part]])
    if part == "valid" and not settings.valid:
        raise InputError("no validation text: give --valid FILE, or leave out --test.")
    return read_pieces(getattr(settings, part))


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


@dataclass(frozen=True)
class Facts:
    """What our own reader must find in a corpus."""

    tokens: dict[str, int]  # of each part, with <eos>
    words: int  # different ones in the training part, with <eos> and <unk>
    fingerprint: str  # of the words and all tokens, as `Text.fingerprint` computes it


FACTS = {
    "ptb": Facts(
        {"train": 929_589, "valid": 73_760, "test": 82_430},
        10_000,
        "9636c50aa87515dd2e1959dd88ba313cd7aff2ae598bbb65cf06b5addafe4380",
    )
}


def texts_in(folder: Path, name: str = "") -> dict[str, str]:
    """Return the train, valid and test settings for a folder.

    With the name of a corpus its files must be there as they were published; without, the files
    are found by their names, and a test text may be missing. A file is a text for everything.
    """
    if not name and folder.is_file():
        return {"train": str(folder)}
    if not name and not folder.exists():
        raise InputError(
            f"{folder} does not exist: give a text file, or a folder with *train*.txt."
        )
    if not name:
        found = find_texts(folder, ("train", "valid", "test"), needed=("train", "valid"))
        return {part: str(path) for part, path in found.items()}
    corpus(name).check(folder)
    facts = FACTS[name]
    paths = {part: folder / f"{name}.{part}.txt" for part in facts.tokens}
    for part, path in paths.items():
        vocabulary: set[str] = set()
        number = sum(1 for _ in _noted(split_tokens(read_pieces(path), Splitting()), vocabulary))
        if number != facts.tokens[part]:
            raise InputError(f"{path} has {number:,} tokens, not {facts.tokens[part]:,}.")
        if part == "train" and len(vocabulary) != facts.words:
            raise InputError(f"{path} has {len(vocabulary):,} words, not {facts.words:,}.")
    return {part: str(path) for part, path in paths.items()}


def corpus_of(fingerprint: str) -> Corpus | None:
    """Return the public corpus that a text is, if it is one."""
    names = (name for name, facts in FACTS.items() if facts.fingerprint == fingerprint)
    found = next(names, None)
    return None if found is None else corpus(found)


def find_texts(
    folder: Path, parts: Iterable[str] = ("valid", "test"), *, needed: tuple[str, ...] = ()
) -> dict[str, Path]:
    """Return the texts of a folder by their names: *train*.txt, *valid*.txt, *test*.txt.

    At least one has to be there, and all that are `needed`.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: give one that holds *valid*.txt.")
    found = {}
    for part in parts:
        files = sorted(folder.glob(f"*{part}*.txt"))
        if len(files) > 1:
            names = ", ".join(file.name for file in files)
            raise InputError(
                f"{folder} has several texts for {part} ({names}): give --{part} FILE."
            )
        if files:
            found[part] = files[0]
    for part in needed:
        if part not in found:
            raise InputError(f"{folder} has no *{part}*.txt: give --{part} FILE.")
    if not found:
        raise InputError(f"{folder} has neither *valid*.txt nor *test*.txt: give --valid FILE.")
    return found


def _noted(tokens: Iterable[str], seen: set[str]) -> Iterator[str]:
    for token in tokens:
        seen.add(token)
        yield token
