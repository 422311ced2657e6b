"""Checkpoints: safetensors and JSON with a checksum, two of each name kept.

    checkpoints/gated-000007/tensors.safetensors
                             state.json
                             manifest.json        size and sha256 of the other two

A checkpoint is written under another name and renamed when all of it is on the disk; the oldest
is removed only after that. So at least one complete checkpoint exists at any moment. By hand,
because torch's own checkpoints are pickles.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic_core import from_json
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from thinrnn._files import open_regular, read_json
from thinrnn.errors import FolderError, RunError, ThinRNNError
from thinrnn.lab.run.errors import StorageError
from thinrnn.lab.run.files import remove_folder, storage, sync_folder, write_synced
from thinrnn.lab.run.packing import pack, unpack
from thinrnn.lab.run.schemas import Manifest

PARTS = ("tensors.safetensors", "state.json")
KEPT = 2  # checkpoints of each name


class DamagedError(Exception):
    """A checkpoint is not what was written."""


class Checkpoints:
    """The checkpoints of a run, by name (a phase of training, say)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damaged: set[Path] = set()

    def save(self, name: str, state: Any) -> Path:
        """Write a checkpoint and drop those that are too old."""
        described, tensors = pack(state)
        contents = (save_tensors(tensors), json.dumps(described).encode())
        manifest = {
            part: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for part, data in zip(PARTS, contents, strict=True)
        }
        older = self.of(name)  # a damaged one keeps its number, but must not push out a good one
        serial = _serial(older[-1]) + 1 if older else 1
        final = self.folder / f"{name}-{serial:06d}"
        temporary = self.folder / f".tmp-{final.name}"
        with storage(final):
            try:
                self.folder.mkdir(exist_ok=True)  # in a run folder, or else that is gone
                remove_folder(temporary)
                temporary.mkdir()
                for part, data in zip(PARTS, contents, strict=True):
                    write_synced(temporary / part, data)
                write_synced(temporary / "manifest.json", json.dumps(manifest).encode())
                sync_folder(temporary)
                os.replace(temporary, final)
                sync_folder(self.folder)
            except OSError:
                remove_folder(temporary)
                raise
        whole = [folder for folder in (*older, final) if folder not in self.damaged]
        for old in {*whole[:-KEPT], *(set(older) & self.damaged)}:
            remove_folder(old)
        return final

    def latest(self, name: str) -> tuple[Any | None, list[str]]:
        """Return the newest undamaged state, or None, and a line per damaged checkpoint."""
        notes: list[str] = []
        for folder in reversed(self.of(name)):
            try:
                return read_checkpoint(folder), notes
            except DamagedError as error:
                self.damaged.add(folder)
                notes.append(f"checkpoint {folder.name} is damaged ({error}), using the one before")
        if notes:
            notes[-1] = notes[-1].replace("using the one before", "starting this phase again")
        return None, notes

    def of(self, name: str) -> list[Path]:
        """Return the folders of a name, oldest first."""
        pattern = re.compile(re.escape(name) + r"-\d{6,}")
        if not self.folder.is_dir():
            return []
        found = [path for path in self.folder.iterdir() if pattern.fullmatch(path.name)]
        return sorted(found, key=_serial)

    def drop(self, name: str) -> None:
        """Remove all checkpoints of a name."""
        for folder in self.of(name):
            remove_folder(folder)


def read_checkpoint(folder: Path) -> Any:
    """Return the state of one checkpoint, or raise DamagedError."""
    try:
        manifest = read_json(folder / "manifest.json", Manifest).parts()
        contents = []
        for part in PARTS:
            with open_regular(folder / part) as file:
                data = file.read(manifest[part].bytes + 1)
            if len(data) != manifest[part].bytes:
                raise DamagedError(f"{part} does not have {manifest[part].bytes} bytes")
            if hashlib.sha256(data).hexdigest() != manifest[part].sha256:
                raise DamagedError(f"{part} does not match its checksum")
            contents.append(data)
        # NaN and infinity are written by `json.dumps`, and meant: the best score so far may be inf
        described = from_json(contents[1])
        return unpack(described, load_tensors(contents[0]))
    except FolderError as error:
        raise DamagedError(str(error).rstrip(".")) from error
    except (LookupError, AttributeError, TypeError, ValueError, SafetensorError) as error:
        raise DamagedError(f"state.json cannot be read: {error}") from error
    except OSError as error:
        raise StorageError(f"cannot read {folder}: {error.strerror}") from error


@contextlib.contextmanager
def fitting(run: Path) -> Iterator[None]:
    """Say in one line that a checkpoint which is whole is not one of this run."""
    try:
        yield
    except ThinRNNError as error:
        raise RunError(f"the last checkpoint of {run} does not fit: {error}") from error
    except (LookupError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        raise RunError(
            f"the last checkpoint of {run} does not fit its settings ({reason}): remove it, and "
            "the one before is used."
        ) from error


def _serial(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])
