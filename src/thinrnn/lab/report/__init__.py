"""The HTML report of one or several run folders."""

from collections.abc import Sequence
from pathlib import Path

from thinrnn._extras import require


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write one HTML file about one or several run folders.

    The file needs no other file and no network, and runs no script. A run in progress shows what
    it has so far, and its page loads itself again every ten seconds.

    Args:
        folders: One run folder, or several to compare.
        out: The file to write; without it, report.html in the first folder.

    Returns:
        The file that was written.

    Raises:
        RunError: A folder is not a run folder or is damaged, or the file cannot be written.
        MissingExtraError: The extra "report" is not installed.

    Example:
        write_report([Path("runs/demo")])
    """
    require("report", "jinja2", "matplotlib")
    from thinrnn.lab.report.write import write_page

    return write_page(folders, out)


__all__ = ["write_report"]
