"""The largest amount of memory that this process has had."""

import re
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


def peak_memory() -> int | None:
    """Return bytes, or None where the system does not tell."""
    try:
        # not getrusage: it also counts what the process was before it ran this program
        found = re.search(r"^VmHWM:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
        if found:
            return int(found[1]) * 1024
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def restart_peak() -> bool:
    """Let the peak count from now on; return whether that is possible here."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return False
    return True
