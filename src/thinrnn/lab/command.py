"""Commands that messages tell the user to run."""

import os
import shlex
import shutil
import sys
from pathlib import Path


def command(*words: object) -> str:
    """Return a call of thinrnn that can be pasted into a shell.

    The program is called `thinrnn` where the shell finds this one by that name, and else by its
    path, as in `.venv/bin/thinrnn`. Paths with spaces are quoted.

    >>> command("train", "--resume", "my runs/lm")
    "thinrnn train --resume 'my runs/lm'"
    """
    return shlex.join([_program(), *map(str, words)])


def _program() -> str:
    running = Path(sys.argv[0])
    found = shutil.which("thinrnn")
    if running.name != "thinrnn" or not running.is_file():  # python -m, or another program
        return "thinrnn"
    if found is not None and running.samefile(found):
        return "thinrnn"
    shown = os.path.relpath(running)
    return str(running.resolve()) if shown.startswith("..") else shown
