"""GloVe vectors: text files, plain or gzipped, of any dimension.

`find_vectors` keeps a file in a form in which words are found at once.
"""

import contextlib
import hashlib
import io
from collections.abc import Collection, Container, Iterator
from pathlib import Path

import numpy
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from thinrnn._files import cache_folder, write_safely
from thinrnn.lab.recipes.squad.reading import unpacked
from thinrnn.lab.run.errors import InputError, StorageError
from thinrnn.lab.run.files import storage

MOST_LETTERS = 10**6  # of a line


def find_glove(folder: Path, size: int | None = None) -> Path:
    """Return the GloVe file of a folder; with several, the one of the given dimension."""
    files = sorted([*folder.glob("*.txt"), *folder.glob("*.txt.gz")])
    if not files:
        raise InputError(
            f"{folder} holds no GloVe file (*.txt or *.txt.gz): put glove.6B.100d.txt there."
        )
    fitting = [file for file in files if size is None or glove_size(file) == size]
    if not fitting:
        sizes = ", ".join(f"{file.name} {glove_size(file)}" for file in files)
        raise InputError(f"{folder} has no GloVe vectors of {size} numbers ({sizes}).")
    if len(fitting) > 1:
        names = ", ".join(file.name for file in fitting)
        raise InputError(f"{folder} has several GloVe files ({names}): keep one of them.")
    return fitting[0]


def read_glove(path: Path, wanted: Container[str] | None) -> tuple[dict[str, int], Tensor]:
    """Return the rows of the wanted words, or of all, and the vectors (rows, dimension)."""
    rows: dict[str, int] = {}
    vectors: list[numpy.ndarray] = []
    size = glove_size(path)
    for number, line in enumerate(_lines(path), start=1):
        # Some words of the larger files hold blanks: the last `size` fields are the numbers.
        word, *numbers = line.rsplit(" ", size)
        if (wanted is not None and word not in wanted) or word in rows:
            continue
        try:
            vectors.append(numpy.array(numbers, dtype=numpy.float32))
            if len(numbers) != size:
                raise ValueError(f"{len(numbers)} numbers, not {size}")
        except ValueError as error:
            raise InputError(f"{path} line {number}: {error}; fetch it again.") from None
        rows[word] = len(rows)
    if not vectors:
        raise InputError(f"{path} has no word of the text: is it a GloVe file of this language?")
    return rows, torch.from_numpy(numpy.stack(vectors))


def glove_size(path: Path) -> int:
    """Return how many numbers a vector of the file has."""
    first = next(_lines(path), "")
    size = len(first.split()) - 1
    if size < 1:
        raise InputError(f"{path} is not a GloVe file: its first line has no numbers.")
    return size


def _lines(path: Path) -> Iterator[str]:
    try:
        with unpacked(path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8")
            while line := text.readline(MOST_LETTERS):
                if len(line) == MOST_LETTERS:
                    raise InputError(f"{path} is not a GloVe file: a line has a million letters.")
                yield line.rstrip("\n")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text: give GloVe's text format.") from None


def find_vectors(path: Path, wanted: Collection[str]) -> tuple[dict[str, int], Tensor]:
    """Return what `read_glove` returns, from the cache if the file was read before."""
    kept = cache_folder() / f"glove-{_key(path)}.safetensors"
    found = _look_up(kept, wanted)
    if found is None:
        rows, vectors = read_glove(path, None)
        words = torch.frombuffer(bytearray("\n".join(rows).encode()), dtype=torch.uint8)
        tensors = {"words": words, "vectors": vectors}
        with contextlib.suppress(StorageError), storage(kept):  # it works without, only slower
            write_safely(kept, lambda temporary: save_file(tensors, temporary))
        found = _chosen(list(rows), vectors, wanted)
    if not found[0]:
        raise InputError(f"{path} has no word of the text: is it a GloVe file of this language?")
    return found


def _key(path: Path) -> str:
    try:
        state = path.stat()
    except OSError as error:
        raise InputError(f"{path} does not exist or cannot be read: {error.strerror}.") from None
    written = f"1 {path.resolve()} {state.st_size} {state.st_mtime_ns}"
    return hashlib.sha256(written.encode()).hexdigest()[:16]


def _look_up(kept: Path, wanted: Collection[str]) -> tuple[dict[str, int], Tensor] | None:
    if not kept.exists():
        return None
    try:
        with safe_open(kept, framework="pt") as file:
            words = file.get_tensor("words").numpy().tobytes().decode().split("\n")
            return _chosen(words, file.get_tensor("vectors"), wanted)
    except (OSError, SafetensorError, ValueError, IndexError):
        return None  # it is made again


def _chosen(
    words: list[str], vectors: Tensor, wanted: Collection[str]
) -> tuple[dict[str, int], Tensor]:
    places = [place for place, word in enumerate(words) if word in wanted]
    rows = {words[place]: row for row, place in enumerate(places)}
    return rows, vectors[torch.tensor(places, dtype=torch.long)]
