"""Texts without the paths of a machine."""

import re
from typing import Any

from thinrnn.lab.run.folder import MODELS

# A path that begins at the root, at home or outside the folder.
LOCAL_PATH = re.compile(r"(?<![\w.])(?:~|\.{1,2})?/((?:[^\s/'\"=,]+/)*[^\s/'\"=,]*)")


def without_paths(value: Any) -> Any:
    """Return JSON values with every local path cut to its last part, or to run and model.

    >>> without_paths({"command": "thinrnn train lm --data ../../texts/ptb"})
    {'command': 'thinrnn train lm --data ptb'}
    """
    if isinstance(value, dict):
        return {key: without_paths(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_paths(item) for item in value]
    return LOCAL_PATH.sub(_end, value) if isinstance(value, str) else value


def _end(path: re.Match[str]) -> str:
    """Return the last part of a path, after the run's name if it is a model of a run."""
    *parents, last = path[1].split("/")
    return f"{parents[-1]}/{last}" if parents and last in MODELS.values() else last
