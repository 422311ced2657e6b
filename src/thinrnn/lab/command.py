"""Commands that messages tell the user to call."""

import shlex


def command(*words: object) -> str:
    """Return a call of thinrnn that a shell reads as it is meant, whatever its paths contain.

    >>> command("train", "--resume", "my runs/lm")
    "thinrnn train --resume 'my runs/lm'"
    """
    return shlex.join(["thinrnn", *map(str, words)])
