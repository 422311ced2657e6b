"""GloVe vectors: text files, plain or gzipped, of any dimension."""

import gzip
import zlib
from collections.abc import Container, Iterator
from pathlib import Path

import numpy
import torch
from torch import Tensor

from thinrnn.lab.run.errors import InputError


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


def read_glove(path: Path, wanted: Container[str]) -> tuple[dict[str, int], Tensor]:
    """Return the rows of the wanted words that the file has, and the vectors (rows, dimension)."""
    rows: dict[str, int] = {}
    vectors: list[numpy.ndarray] = []
    size = glove_size(path)
    for number, line in enumerate(_lines(path), start=1):
        # Some words of the larger files hold blanks: the last `size` fields are the numbers.
        word, *numbers = line.rsplit(" ", size)
        if word not in wanted or word in rows:
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
        with (
            gzip.open(path, "rt", encoding="utf-8")
            if path.suffix == ".gz"
            else open(path, encoding="utf-8") as file
        ):
            for line in file:
                yield line.rstrip("\n")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: check the path.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(f"{path} is cut off or damaged: fetch it again.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text: give GloVe's text format.") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
