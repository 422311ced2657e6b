"""Where prepared data is cached."""

import os
from pathlib import Path


def default_cache() -> Path:
    """Return the user's cache folder; not pooch's, because that needs an extra."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thinrnn"
