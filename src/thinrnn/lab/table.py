"""Rows of text as aligned columns."""

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]], *, left: int | None = None) -> str:
    """Return rows as aligned columns.

    Args:
        rows: The cells, the same number in each row.
        left: How many columns are aligned to the left; the others to the right. None: all.

    >>> print(table([("model", "ms"), ("dense", "10.5"), ("small", "1.2")], left=1))
    model    ms
    dense  10.5
    small   1.2
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = len(widths) if left is None else left
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:left], widths, strict=False)]
        cells += [c.rjust(width) for c, width in zip(row[left:], widths[left:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
