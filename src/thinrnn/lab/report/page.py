"""The page around the charts: figures, tables, number cards, and the one HTML file."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from thinrnn.lab.report.svg import tag

WIDE = (940.0, 348.0)
HALF = (452.0, 300.0)
NARROW = (360.0, 280.0)


def page(title: str, body: str, *, refresh: bool) -> str:
    """Returns the whole file; the policy in its head forbids every request to the network."""
    here = files("thinrnn.lab.report")
    style = here.joinpath("style.css").read_text(encoding="utf-8")
    script = here.joinpath("hover.js").read_text(encoding="utf-8")
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    )
    again = '<meta http-equiv="refresh" content="10">\n' if refresh else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n{again}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"{body}\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def section(key: str, title: str, *parts: str) -> str:
    """Returns a titled section, nothing at all if it has no parts."""
    content = "\n".join(part for part in parts if part)
    return (
        f'<section id="{key}">\n<h2>{escape(title)}</h2>\n{content}\n</section>' if content else ""
    )


def paragraph(content: str, class_: str = "lead") -> str:
    return tag("p", escape(content), class_=class_)


def figure(title: str, note: str, charts: str, numbers_table: str, *, class_: str = "") -> str:
    """Returns charts under their caption, with the numbers in a table that opens below."""
    caption = tag("figcaption", f"<b>{escape(title)}</b> {escape(note)}")
    details = tag("details", f"<summary>Numbers</summary>{numbers_table}")
    return tag("figure", caption + charts + details, class_=class_)


def folded(items: Sequence[str], class_: str, *, style: str = "", most: int = 12) -> str:
    """Returns items in a grid, those beyond `most` in a part that opens on request."""
    first = tag("div", "".join(items[:most]), class_=class_, style=style)
    if len(items) <= most:
        return first
    rest = tag("div", "".join(items[most:]), class_=class_, style=style)
    return first + tag("details", f"<summary>{len(items) - most} more</summary>{rest}")


def both(wide: str, narrow: str) -> str:
    """Returns a chart in two sizes; the style sheet shows the one that fits the screen."""
    return tag("div", wide, class_="on-wide") + tag("div", narrow, class_="on-narrow")


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str,
    class_: str = "",
    marked: Sequence[int] = (),
) -> str:
    """Returns a table that scrolls inside its own box; the first cell of a row names the row."""
    heads = "".join(tag("th", escape(cell), scope="col") for cell in head)
    body = []
    for i, row in enumerate(rows):
        cells = tag("th", escape(row[0]), scope="row")
        cells += "".join(tag("td", escape(cell)) for cell in row[1:])
        body.append(tag("tr", cells, **({"class_": "marked"} if i in marked else {})))
    whole = (
        tag("caption", escape(caption))
        + (tag("thead", tag("tr", heads)) if head else "")
        + tag("tbody", "\n".join(body))
    )
    # A box that scrolls must be reachable with the keyboard, and then it needs a name.
    return tag(
        "div",
        tag("table", whole),
        class_=f"scroll {class_}".strip(),
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def cards(items: Sequence[tuple[str, str, str]]) -> str:
    """Returns big numbers: (what, the number, what it compares to)."""
    return tag(
        "dl",
        "".join(
            tag(
                "div",
                tag("dt", escape(what))
                + tag("dd", escape(number), class_="number")
                + tag("dd", escape(note), class_="note"),
            )
            for what, number, note in items
        ),
        class_="cards",
    )
