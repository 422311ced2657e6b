"""GloVe files in a form in which words are found at once: made at the first use, then kept."""

import contextlib
import hashlib
from collections.abc import Collection
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from thinrnn._files import write_safely
from thinrnn.lab.data.cache import default_cache
from thinrnn.lab.recipes.squad.glove import read_glove
from thinrnn.lab.run.errors import InputError, StorageError
from thinrnn.lab.run.files import storage


class _All:
    def __contains__(self, word: object) -> bool:
        return True


def find_vectors(path: Path, wanted: Collection[str]) -> tuple[dict[str, int], Tensor]:
    """Return what `read_glove` returns, from the cache if the file was read before."""
    kept = default_cache() / f"glove-{_key(path)}.safetensors"
    found = _look_up(kept, wanted)
    if found is None:
        rows, vectors = read_glove(path, _All())
        with contextlib.suppress(StorageError):  # it works without, only slower
            _keep(kept, rows, vectors)
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


def _keep(kept: Path, rows: dict[str, int], vectors: Tensor) -> None:
    words = torch.frombuffer(bytearray("\n".join(rows).encode()), dtype=torch.uint8)
    tensors = {"words": words, "vectors": vectors}
    with storage(kept):
        write_safely(kept, lambda temporary: save_file(tensors, temporary))


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
