"""Text as numbers: files of any size read as a stream, words or characters, a vocabulary.

a.txt ── pieces of text ── tokens, <eos> at line ends ── numbers (N,) ── B streams (N / B, B)
"""

import io
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy
import torch
from torch import Tensor

from thinrnn._files import open_regular
from thinrnn.lab.run.errors import InputError

EOS, UNK = "<eos>", "<unk>"
PIECE = 1 << 20  # characters read at a time
WORDS_AND_MARKS = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Splitting:
    """How text becomes tokens."""

    level: str = "word"  # "word" splits at white space, "char" takes each character
    lower: bool = False
    punctuation: bool = False  # split words from the marks around them

    def tokens(self, line: str) -> Iterable[str]:
        """Return the tokens of a piece of one line."""
        if self.lower:
            line = line.lower()
        if self.level == "char":
            return line
        return WORDS_AND_MARKS.findall(line) if self.punctuation else line.split()

    def join(self, tokens: Iterable[str]) -> str:
        """Return tokens as text; white space between words comes back as one blank."""
        glue = "" if self.level == "char" else " "
        lines: list[list[str]] = [[]]
        for token in tokens:
            if token == EOS:
                lines.append([])
            else:
                lines[-1].append(token)
        return "\n".join(glue.join(line) for line in lines)


@dataclass(frozen=True)
class Vocabulary:
    """All tokens that a model knows; a token's number is its place."""

    tokens: tuple[str, ...]
    splitting: Splitting
    numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", {t: i for i, t in enumerate(self.tokens)})

    def __len__(self) -> int:
        return len(self.tokens)

    def number(self, token: str) -> int:
        """Return the number of a token; one that is not known is <unk>."""
        return self.numbers.get(token, self.numbers[UNK])

    def encode(self, tokens: Iterable[str]) -> Tensor:
        """Return the numbers of tokens, int32."""
        numbers, unknown = self.numbers, self.number(UNK)
        found = array("i", (numbers.get(token, unknown) for token in tokens))
        return torch.from_numpy(numpy.frombuffer(found, dtype=numpy.int32).copy())


def read_pieces(path: str | Path) -> Iterator[str]:
    """Yield the text of a UTF-8 file in pieces."""
    path, empty = Path(path), True
    try:
        if not path.exists():
            raise InputError(f"{path} does not exist: check the path.")
        if path.is_dir():
            raise InputError(f"{path} is a folder: give a file, or the folder as --data.")
        with io.TextIOWrapper(open_regular(path, InputError), encoding="utf-8-sig") as file:
            while piece := file.read(PIECE):
                if "\0" in piece:
                    raise InputError(
                        f"{path} is a binary file (it has zero bytes): give UTF-8 text."
                    )
                empty = False
                yield piece
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text ({error.reason}): give a text file, or convert it "
            "with 'iconv -t utf-8'."
        ) from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
    if empty:
        raise InputError(f"{path} is empty: give a file with text in it.")


def split_tokens(pieces: Iterable[str], splitting: Splitting) -> Iterator[str]:
    """Yield the tokens of a text, <eos> after every line, wherever the pieces are cut."""
    rest, line_is_open = "", False
    for piece in pieces:
        text = rest + piece
        rest = ""
        if splitting.level == "word":
            # The last word may go on in the next piece; one of more than a million letters is cut.
            last = "" if text[-1].isspace() else text.rsplit(None, 1)[-1]
            whole = len(text) - len(last)
            if whole or len(text) < 2 * PIECE:
                text, rest = text[:whole], text[whole:]
        first, *others = text.split("\n")
        yield from splitting.tokens(first)
        line_is_open = line_is_open or bool(first)
        for line in others:
            yield EOS
            yield from splitting.tokens(line)
            line_is_open = bool(line)
    if rest:
        yield from splitting.tokens(rest)
    if rest or line_is_open:
        yield EOS


def make_vocabulary(
    tokens: Iterable[str], splitting: Splitting, *, largest: int = 0, min_count: int = 1
) -> Vocabulary:
    """Return the vocabulary of the training text, most frequent tokens first, ties by name."""
    counts = Counter(tokens)
    words = [token for token in counts if token not in (EOS, UNK)]
    if len(words) < 2:
        known = f"one word only ('{words[0]}')" if words else "no words"
        raise InputError(f"the training text has {known}: there is nothing to learn.")
    words = [word for word in words if counts[word] >= min_count]
    words.sort(key=lambda word: (-counts[word], word))
    if largest:
        words = words[: max(0, largest - 2)]
    if not words:
        raise InputError(
            "no word of the training text is left in the vocabulary: "
            "raise max_vocabulary or lower min_count."
        )
    return Vocabulary((EOS, UNK, *words), splitting)


def streams(tokens: Tensor, batch: int) -> Tensor:
    """Return (length, batch): the text cut into `batch` streams side by side, the rest left out."""
    length = len(tokens) // batch
    if length < 2:
        raise InputError(
            f"the training text has {len(tokens)} tokens, too few for batch={batch}: "
            f"give more text or --set batch={max(1, len(tokens) // 64)}."
        )
    return tokens[: length * batch].view(batch, length).t().contiguous()


def scoring_streams(tokens: Tensor, batch: int, start: int) -> tuple[Tensor, Tensor]:
    """Return inputs and targets (length, batch) in which every token is a target exactly once.

    The text begins after `start` (<eos>); places that only fill up the last stream have the
    target -1.
    """
    length = -(-len(tokens) // batch)
    filled = length * batch - len(tokens)
    inputs = torch.cat([tokens.new_tensor([start]), tokens[:-1], tokens.new_full((filled,), start)])
    targets = torch.cat([tokens, tokens.new_full((filled,), -1)])
    return inputs.view(batch, length).t().contiguous(), targets.view(batch, length).t().contiguous()
