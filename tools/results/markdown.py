"""Tables in Markdown."""

from collections.abc import Sequence


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
