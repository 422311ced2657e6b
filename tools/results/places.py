"""Places in pages for what the results say: <!-- NAME --> ... <!-- end of NAME -->."""

import re
from collections.abc import Mapping
from pathlib import Path

PLACE = re.compile(r"(<!-- ([\w ]+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)
MISSING = "Not measured yet."
PAGES = (
    "README.md",
    *(
        f"docs/how-to/{name}.md"
        for name in ("which-size-for-my-cpu", "int8", "streaming", "recurrent-highway")
    ),
)


def filled_pages(root: Path, contents: Mapping[str, str]) -> dict[Path, str]:
    """Return the pages that have such places, filled in."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in (root / name for name in PAGES)
        if path.exists()
    }
    return {path: fill(text, contents) for path, text in texts.items() if PLACE.search(text)}


def fill(text: str, contents: Mapping[str, str]) -> str:
    """Return a page with its places filled in."""

    def inside(place: re.Match[str]) -> str:
        return f"{place[1]}{contents[place[2]] or MISSING}\n{place[3]}"

    return PLACE.sub(inside, text)
