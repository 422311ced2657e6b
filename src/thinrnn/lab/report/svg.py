"""The few SVG pieces that all charts share: elements, text, axes, and the wrapped chart.

A chart is a string of HTML: an inline <svg> and beside it a JSON block with what hover.js shows.
Colours are CSS classes, so that one drawing serves the light and the dark theme.
"""

import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from thinrnn.lab.report import numbers
from thinrnn.lab.report.scale import Scale

CHARACTER = 7.8  # width of a character of chart text in a wide font, in drawing units
LINE = 15.0  # height of a line of chart text
_ELLIPSIS = "…"


def tag(name: str, content: str = "", /, **attributes: object) -> str:
    """Returns one element; `class_` is class, `_` in other names is `-`, content is taken as is."""
    parts = [name]
    for key, value in attributes.items():
        key = "class" if key == "class_" else key.replace("_", "-")
        text = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
        parts.append(f'{key}="{escape(text)}"')
    return f"<{' '.join(parts)}>{content}</{name}>"


def text(x: float, y: float, content: str, class_: str, anchor: str = "start") -> str:
    """Returns a line of text; the content is escaped."""
    return tag("text", escape(content), x=x, y=y, class_=class_, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def text_width(content: str) -> float:
    """An estimate that errs on the wide side; fonts differ from browser to browser."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in content)
    return CHARACTER * (len(content) + 0.8 * wide)


def clip(content: str, width: float) -> str:
    """Returns the text, its middle left out where it is wider than `width`."""
    if text_width(content) <= width:
        return content
    room = max(int(width / CHARACTER) - 1, 2)
    return content[: room - room // 2] + _ELLIPSIS + content[len(content) - room // 2 :]


def chart(
    drawing: str, width: float, height: float, *, label: str, kind: str, hover: Mapping[str, Any]
) -> str:
    """Returns the drawing as a chart of `kind` with its description and its hover read-outs."""
    svg = tag(
        "svg",
        drawing + '<g class="cursor" visibility="hidden"><line/><circle r="4"/></g>',
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        tabindex="0",
        aria_label=label,
        style=f"--natural:{width:g}px",
    )
    return tag("div", svg + json_block(hover), class_="chart", data_chart=kind)


def json_block(data: Mapping[str, Any]) -> str:
    """Returns a data block that no text inside it can end early."""
    dumped = json.dumps(_rounded(data), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # These three also keep names from forming a tag or an entity in tools that read no scripts.
    safe = dumped.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json">{safe}</script>'


def _rounded(data: Any) -> Any:
    if isinstance(data, float):
        return round(data, 1) if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {key: _rounded(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_rounded(value) for value in data]
    return data


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """Returns the tick values written alike: 0, 500, 1,000 or 0, 20 k, 40 k."""
    largest = max((abs(t) for t in ticks), default=0.0)
    if largest >= 1e15 or 0 < largest < 1e-3:
        return [numbers.power(t) for t in ticks]
    if largest >= 1e4:
        return [_with_unit(t) for t in ticks]
    return [f"{t:,.6g}".replace("-", "−") for t in ticks]


def _with_unit(value: float) -> str:
    for bound, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= bound:
            return f"{value / bound:g}{unit}".replace("-", "−")
    return f"{value:g}".replace("-", "−")


def axes(
    x: Scale, y: Scale, *, x_title: str, y_title: str, whole_x: bool = False, x_most: int = 6
) -> str:
    """Returns pale horizontal lines, tick texts and the two titles, y's above its axis."""
    parts = [text(0.0, y.end - 14, y_title, "axis")]
    y_ticks = y.ticks(5)
    for value, content in zip(y_ticks, tick_texts(y_ticks), strict=True):
        parts.append(line(x.start, y(value), x.end, y(value), "grid"))
        parts.append(text(x.start - 8, y(value) + 4, content, "tick", "end"))
    parts.append(line(x.start, y.start, x.end, y.start, "base"))
    x_ticks = [t for t in x.ticks(x_most) if not whole_x or t == round(t)]
    for value, content in zip(x_ticks, tick_texts(x_ticks), strict=True):
        parts.append(line(x(value), y.start, x(value), y.start + 4, "base"))
        parts.append(text(x(value), y.start + 18, content, "tick", "middle"))
    parts.append(text((x.start + x.end) / 2, y.start + 36, x_title, "axis", "middle"))
    return "".join(parts)


def tick_room(y: Scale) -> float:
    """Returns the width that the tick texts left of the plot need."""
    return max((text_width(t) for t in tick_texts(y.ticks(5))), default=0.0) + 10
