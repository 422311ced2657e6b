"""Where data that is prepared once is kept."""

import os
from pathlib import Path


def default_cache() -> Path:
    """Return the user's cache folder for prepared data."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thinrnn"
