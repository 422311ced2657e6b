"""Rows of text as aligned columns."""

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]], align: str = "<", *, rule: bool = False) -> str:
    """Return rows as aligned columns.

    Args:
        rows: The cells, the same number in each row.
        align: "<" or ">" for each column, left or right; the last one holds for all further ones.
        rule: Draw a line below the first row.

    >>> print(table([("model", "ms"), ("dense", "10.5"), ("small", "1.2")], "<>", rule=True))
    model    ms
    -----------
    dense  10.5
    small   1.2
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = align.ljust(len(widths), align[-1])
    lines = []
    for row in rows:
        cells = zip(row, sides, widths, strict=True)
        lines.append("  ".join(f"{cell:{side}{width}}" for cell, side, width in cells).rstrip())
    if rule:
        lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)
