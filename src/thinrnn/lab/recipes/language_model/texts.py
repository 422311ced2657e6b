"""The texts in a folder: a public corpus, which is checked, or whatever its files are called."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from thinrnn.lab.data.corpora import Corpus, corpus
from thinrnn.lab.recipes.language_model.data import Splitting, read_pieces, split_tokens
from thinrnn.lab.run.errors import InputError


@dataclass(frozen=True)
class Facts:
    """What our own reader must find in a corpus."""

    tokens: dict[str, int]  # of each part, with <eos>
    words: int  # different ones in the training part, with <eos> and <unk>
    fingerprint: str  # of the words and all tokens, as `Text.fingerprint` computes it


FACTS = {
    "ptb": Facts(
        {"train": 929_589, "valid": 73_760, "test": 82_430},
        10_000,
        "9636c50aa87515dd2e1959dd88ba313cd7aff2ae598bbb65cf06b5addafe4380",
    )
}


def texts_in(folder: Path, name: str = "") -> dict[str, str]:
    """Return the train, valid and test settings for a folder.

    With the name of a corpus its files must be there as they were published; without, the files
    are found by what their names say, and a test text may be missing.
    """
    if not name:
        found = find_texts(folder, ("train", "valid", "test"), needed=("train", "valid"))
        return {part: str(path) for part, path in found.items()}
    corpus(name).check(folder)
    facts = FACTS[name]
    paths = {part: folder / f"{name}.{part}.txt" for part in facts.tokens}
    for part, path in paths.items():
        vocabulary: set[str] = set()
        number = sum(1 for _ in _noted(split_tokens(read_pieces(path), Splitting()), vocabulary))
        if number != facts.tokens[part]:
            raise InputError(f"{path} has {number:,} tokens, not {facts.tokens[part]:,}.")
        if part == "train" and len(vocabulary) != facts.words:
            raise InputError(f"{path} has {len(vocabulary):,} words, not {facts.words:,}.")
    return {part: str(path) for part, path in paths.items()}


def corpus_of(fingerprint: str) -> Corpus | None:
    """Return the public corpus that a text is, if it is one."""
    names = (name for name, facts in FACTS.items() if facts.fingerprint == fingerprint)
    found = next(names, None)
    return None if found is None else corpus(found)


def find_texts(
    folder: Path, parts: Iterable[str] = ("valid", "test"), *, needed: tuple[str, ...] = ()
) -> dict[str, Path]:
    """Return the texts of a folder by what their names say: *train*.txt, *valid*.txt, *test*.txt.

    At least one has to be there, and all that are `needed`.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: give one that holds *valid*.txt.")
    found = {}
    for part in parts:
        files = sorted(folder.glob(f"*{part}*.txt"))
        if len(files) > 1:
            names = ", ".join(file.name for file in files)
            raise InputError(
                f"{folder} has several texts for {part} ({names}): give --{part} FILE."
            )
        if files:
            found[part] = files[0]
    for part in needed:
        if part not in found:
            raise InputError(f"{folder} has no *{part}*.txt: give --{part} FILE.")
    if not found:
        raise InputError(f"{folder} has neither *valid*.txt nor *test*.txt: give --valid FILE.")
    return found


def _noted(tokens: Iterable[str], seen: set[str]) -> Iterator[str]:
    for token in tokens:
        seen.add(token)
        yield token
