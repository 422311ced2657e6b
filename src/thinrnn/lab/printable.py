"""Text that is safe to print: a file may hold control codes that rule a terminal."""

import re

# Control codes but for line ends and tabs, marks that reverse the order of text, lone surrogates.
HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""Return a text with escapes, as JSON writes them, in place of control codes.

    >>> print(printable("red: \x1b[31m"))
    red: \u001b[31m
    """
    return HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
