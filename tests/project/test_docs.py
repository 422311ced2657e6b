"""The pages say what is true: their code runs, their printed output is right, their links lead on.

On each page the ```python blocks run in order, in one namespace that starts empty: every page is
complete by itself. An ```output block right after one of them is what it prints, word for word.
"""

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A piece of code on a page, and what the page says that it prints."""

    line: int
    code: str
    output: str | None


def blocks_of(text: str) -> list[Block]:
    """Return the Python blocks of a page."""
    fences = list(FENCE.finditer(text))
    blocks = []
    for i, fence in enumerate(fences):
        if fence[1] != "python":
            continue
        after = fences[i + 1] if i + 1 < len(fences) else None
        follows = after is not None and after[1] == "output"
        adjacent = follows and not text[fence.end() : after.start()].strip()
        line = text.count("\n", 0, fence.start()) + 1
        blocks.append(Block(line, fence[2], after[2] if adjacent else None))
    return blocks


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that a page's headings get."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_on_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in blocks_of(page.read_text()):
            # lines are counted from the top of the page, so that a traceback leads there
            code = compile("\n" * block.line + block.code, str(page), "exec")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(code, names)
            if block.output is not None:
                found = [line.rstrip() for line in printed.getvalue().splitlines()]
                assert found == block.output.splitlines(), f"output after line {block.line}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_something(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in anchors_of(target), f"no heading for {link}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_output_follows_the_code_that_prints_it(page: Path) -> None:
    text = page.read_text()
    outputs = sum(fence[1] == "output" for fence in FENCE.finditer(text))
    assert outputs == sum(block.output is not None for block in blocks_of(text))


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}
    assert [name_of(page) for page in PAGES[1:] if page != index and page not in linked] == []
