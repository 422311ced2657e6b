"""Horizontal bars: a few models compared in one quantity, the value written at each bar."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from thinrnn.lab.report.svg import chart, clip, line, tag, text, text_width

_BAR = 20.0
_GAP = 10.0


@dataclass(frozen=True)
class Bar:
    """One bar; bars that are not finite are left out."""

    name: str
    value: float
    style: str


def draw_bars(
    title: str,
    bars: Sequence[Bar],
    width: float,
    *,
    value: Callable[[float], str],
    exact: Callable[[float], str],
) -> str:
    """Returns the bars on a common scale that starts at zero; hovering says the exact value."""
    bars = [bar for bar in bars if math.isfinite(bar.value)]
    most = max((bar.value for bar in bars), default=0.0) or 1.0
    left = max((text_width(clip(b.name, width / 3)) for b in bars), default=0.0) + 10
    right = max((text_width(value(b.value)) for b in bars), default=0.0) + 12
    scale = (width - left - right) / most
    parts, points = [], []
    for i, bar in enumerate(bars):
        top = i * (_BAR + _GAP) + 4
        length = max(bar.value * scale, 1.0)
        middle = top + _BAR / 2 + 4.5
        parts += [
            text(left - 10, middle, clip(bar.name, width / 3), "name", "end"),
            tag("rect", x=left, y=top, width=length, height=_BAR, class_=f"bar {bar.style}"),
            text(left + length + 8, middle, value(bar.value), "amount"),
        ]
        points.append(
            {
                "x": left + length,
                "y": top + _BAR / 2,
                "title": bar.name,
                "rows": [[title.lower(), exact(bar.value)]],
                "style": bar.style,
            }
        )
    said = ", ".join(f"{bar.name} {value(bar.value)}" for bar in bars)
    height = len(bars) * (_BAR + _GAP) + 4
    parts.append(line(left, 0.0, left, height - 4, "base"))
    hover = {"kind": "points", "rows": True, "points": points}
    return chart("".join(parts), width, height, label=f"{title}: {said}.", kind="bars", hover=hover)
