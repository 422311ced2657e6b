"""The texts in a folder: a public corpus, which is checked, or whatever its files are called."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from thinrnn.recipes.corpora import corpus
from thinrnn.recipes.language_model.data import Splitting, read_pieces, split_tokens
from thinrnn.run.errors import InputError

# Tokens of each part with <eos>, and the words of the training part with <eos> and <unk>.
COUNTS = {"ptb": ({"train": 929_589, "valid": 73_760, "test": 82_430}, 10_000)}


def texts_in(folder: Path, name: str = "") -> dict[str, str]:
    """Return the train, valid and test settings for a folder.

    With the name of a corpus its files must be there as they were published; without, the files
    are found by what their names say, and a test text may be missing.
    """
    if not name:
        found = find_texts(folder, ("train", "valid", "test"), needed=("train", "valid"))
        return {part: str(path) for part, path in found.items()}
    corpus(name).check(folder)
    counts, words = COUNTS[name]
    paths = {part: folder / f"{name}.{part}.txt" for part in counts}
    for part, path in paths.items():
        vocabulary: set[str] = set()
        number = sum(1 for _ in _noted(split_tokens(read_pieces(path), Splitting()), vocabulary))
        if number != counts[part]:
            raise InputError(f"{path} has {number:,} tokens, not {counts[part]:,}.")
        if part == "train" and len(vocabulary) != words:
            raise InputError(f"{path} has {len(vocabulary):,} different words, not {words:,}.")
    return {part: str(path) for part, path in paths.items()}


def find_texts(
    folder: Path, parts: Iterable[str], *, needed: tuple[str, ...] = ()
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
