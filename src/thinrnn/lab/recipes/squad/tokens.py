"""Text as tokens that know where they stand, and answers as spans of tokens.

"In 1990s, U.S." -> In | 1990 | s | , | U.S.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

# Abbreviations, runs of letters, numbers, and every other mark by itself.
TOKEN = re.compile(r"(?:[^\W\d_]\.){2,}|[^\W\d_]+|\d+(?:[.,]\d+)*|[^\w\s]|_")

Span = tuple[int, int]  # the first character (or token), and the one behind the last


def split(text: str) -> list[Span]:
    """Return where the tokens of a text are: text[start:end] is a token.

    >>> [("U.S. 3.5%")[a:b] for a, b in split("U.S. 3.5%")]
    ['U.S.', '3.5', '%']
    """
    return [found.span() for found in TOKEN.finditer(text)]


class Placed(NamedTuple):
    """The tokens that hold an answer, first and last; or -1 and why there are none."""

    first: int = -1
    last: int = -1
    note: str = ""  # what was wrong with it, if anything


INSIDE = "begins or ends inside a token: the whole token is taken"
MOVED = "is not at its offset, but occurs once: that place is taken"
ELSEWHERE = "is not at its offset"
EMPTY = "holds no token"


def place(text: str, tokens: Sequence[Span], answer: str, start: int) -> Placed:
    """Return the tokens that an answer at a character offset covers."""
    note = ""
    if start < 0 or text[start : start + len(answer)] != answer:
        if not answer or text.count(answer) != 1:
            return Placed(note=ELSEWHERE)
        start, note = text.index(answer), MOVED
    left = start + len(answer) - len(answer.lstrip())
    right = start + len(answer.rstrip())
    first = bisect_right(tokens, left, key=lambda span: span[1])
    last = bisect_left(tokens, right, key=lambda span: span[0]) - 1
    if last < first:
        return Placed(note=EMPTY)
    if not note and (tokens[first][0] != left or tokens[last][1] != right):
        note = INSIDE
    return Placed(first, last, note)
