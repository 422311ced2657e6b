"""One text for everything: most of it for training, a part for validation, a part for the test.

The text is cut into a hundred stretches at ends of lines, and every twentieth is held out: so all
three parts are like the whole, from its beginning to its end.
"""

import itertools

STRETCHES, EVERY = 100, 20
ROLES = {9: "valid", 19: "test"}  # of every twenty


def held_out(text: str) -> dict[str, str]:
    """Return the training, validation and test part of a text."""
    size = len(text) / STRETCHES
    ends = [_end(text, int(n * size), int((n + 1) * size)) for n in range(1, STRETCHES)]
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for n, (begin, end) in enumerate(itertools.pairwise([0, *ends, len(text)])):
        parts[ROLES.get(n % EVERY, "train")].append(text[begin:end])
    return {part: "".join(pieces) for part, pieces in parts.items()}


def _end(text: str, first: int, last: int) -> int:
    """Return where a stretch ends: behind a line or, where there is none, behind a word."""
    for mark in ("\n", " "):
        found = text.find(mark, first, last)
        if found >= 0:
            return found + 1
    return first
