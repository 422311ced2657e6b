"""Texts that differ: from files that Python ships, and the Penn Treebank by words and characters.

    python -m benchmarks.corpora FOLDER --ptb PTB

writes NAME.train.txt, NAME.valid.txt and NAME.test.txt. A text whose files are not on this machine
is left out, by name.
"""

import argparse
import ast
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

from thinrnn.lab.recipes.language_model.corpus import PARTS, built_in_pieces
from thinrnn.lab.recipes.language_model.held_out import held_out

Parts = dict[str, str]
MOST = 1_200_000  # characters of a text that is read by characters


def penn_treebank(ptb: Path) -> Parts:
    """The Penn Treebank, word level."""
    return {part: (ptb / f"ptb.{part}.txt").read_text(encoding="utf-8") for part in PARTS}


def penn_treebank_characters(ptb: Path) -> Parts:
    """The beginning of the Penn Treebank, to be read by characters."""
    shares = {"train": MOST, "valid": MOST // 20, "test": MOST // 20}
    return {part: text[: shares[part]] for part, text in penn_treebank(ptb).items()}


def python_documentation(ptb: Path) -> Parts:
    """The language reference in `pydoc_data.topics`."""
    return {part: "".join(built_in_pieces(part)) for part in PARTS}


def book(ptb: Path) -> Parts:
    """The docstrings of the standard library, prose as long as a book."""
    return held_out("\n".join(docstring for _, text in modules() for docstring in docs(text)))


def source_code(ptb: Path) -> Parts:
    """The standard library's sources, to be read by characters."""
    return held_out("".join(text for _, text in modules())[:MOST])


CORPORA: dict[str, Callable[[Path], Parts]] = {
    "ptb": penn_treebank,
    "ptb-characters": penn_treebank_characters,
    "python-documentation": python_documentation,
    "docstrings": book,
    "source-code": source_code,
}


def modules() -> Iterator[tuple[str, str]]:
    """Yield name and text of every module at the top of the standard library."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        yield path.name, path.read_text(encoding="utf-8")


def docs(text: str) -> Iterator[str]:
    """Yield the docstrings of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node)
            if found:
                yield found + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("folder", type=Path)
    options.add_argument("--ptb", type=Path, required=True, help="folder with the Penn Treebank")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, make in CORPORA.items():
        try:
            parts = make(given.ptb)
        except (OSError, ImportError) as error:
            print(f"no {name}: {error}")
            continue
        for part, text in parts.items():
            (given.folder / f"{name}.{part}.txt").write_text(text, encoding="utf-8")
        print(f"{name}: " + ", ".join(f"{part} {len(text):,}" for part, text in parts.items()))


if __name__ == "__main__":
    main()
