"""Pages: their code runs and prints what they show, their links work, the reference is complete.

The ```python blocks of a page run in order, in one namespace. It starts empty, so a page is
complete by itself; only the README leaves the model and the data to the reader. An ```output
block right after a ```python block is exactly what that block prints.
"""

import contextlib
import io
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.main
from torch import nn

import thinrnn
from thinrnn._extras import missing
from thinrnn.lab.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [
    *PAGES,
    *(
        ROOT / name
        for name in [
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "RESULTS.md",
            "results/minutes.md",
        ]
    ),
]
HEAVY = {"phones-and-boards.md": ("litert_torch", "ai_edge_litert", "ai_edge_quantizer")}
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
DOCUMENTED = re.compile(r"^::: thinrnn\.(\w+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A piece of code on a page, and the output that the page shows for it."""

    line: int
    code: str
    output: str | None


class Tagger(nn.Module):
    """A model that a reader of the README may bring."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.lstm(self.embedding(x))[0])
        return logits


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


def run_page(page: Path, names: dict[str, Any]) -> dict[str, Any]:
    """Run the blocks of a page and compare what they print; return the names they define."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in blocks_of(page.read_text()):
            # lines count from the top of the page, so that a traceback leads there
            code = compile("\n" * block.line + block.code, str(page), "exec")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(code, names)
            if block.output is not None:
                found = [line.rstrip() for line in printed.getvalue().splitlines()]
                assert found == block.output.splitlines(), f"output after line {block.line}"
    return names


@pytest.mark.parametrize("page", PAGES[1:], ids=name_of)
def test_code_on_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if absent := missing(*HEAVY.get(page.name, ())):
        pytest.skip(f"{' and '.join(absent)} not installed: too large for the extra `all`")
    monkeypatch.chdir(tmp_path)
    run_page(page, {"__name__": "page"})


def test_the_code_of_the_readme_prunes_a_model_to_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = Tagger()
    full = thinrnn.count(model).params
    x, y = torch.randint(50, (6, 4)), torch.randint(5, (6, 4))
    yours = {
        "model": model,
        "example": x,
        "batches": [(x, y)] * 510,
        "criterion": lambda logits, y: nn.functional.cross_entropy(logits.mT, y),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Target warns if its selection is chance
        names = run_page(ROOT / "README.md", yours)
    assert thinrnn.count(names["small"]).params <= 0.25 * full
    assert thinrnn.load_(Tagger(), "small-model")(x).shape == (6, 4, 5)


@pytest.mark.parametrize("page", LINKED, ids=name_of)
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


def test_the_how_to_index_links_every_how_to() -> None:
    index = ROOT / "docs" / "how-to" / "index.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}
    assert set(index.parent.glob("*.md")) - linked == {index}


def test_the_reference_documents_every_public_name() -> None:
    documented = [
        name
        for page in sorted((ROOT / "docs" / "reference").glob("*.md"))
        for name in DOCUMENTED.findall(page.read_text())
    ]
    assert sorted(documented) == sorted(set(thinrnn.__all__) - {"__version__"})


def test_the_tree_of_the_architecture_is_that_of_the_source() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    drawn = re.findall(r"^ {2,6}(\w+(?:/|\.py)) ", page, re.MULTILINE)
    package = ROOT / "src" / "thinrnn"
    homes = [package, package / "lab", package / "nn"]
    folders = {f"{p.parent.name}/" for home in homes for p in home.glob("[!_]*/__init__.py")}
    folders |= {f"{p.parent.name}/" for p in package.glob("_*/__init__.py")}
    assert folders <= set(drawn)
    assert [name for name in drawn if not any((home / name).exists() for home in homes)] == []


def test_the_index_of_the_reference_names_what_each_page_documents() -> None:
    folder = ROOT / "docs" / "reference"
    rows = re.findall(
        r"^\| \[[^]]+\]\((\w+\.md)\) \| (.*) \|$", (folder / "index.md").read_text(), re.M
    )
    named = {page: set(re.findall(r"`([\w.]+)`", names)) for page, names in rows}
    for page in folder.glob("*.md"):
        if page.name not in {"index.md", "command-line.md", "errors.md"}:
            documented = re.findall(r"^::: thinrnn\.([\w.]+)$", page.read_text(), re.MULTILINE)
            assert named[page.name] == set(documented)


def test_the_reference_documents_every_command() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE)) == set(commands)
