"""The data of a folder, as the commands ask for it."""

from pathlib import Path

from thinrnn.lab.data.corpora import Corpus
from thinrnn.lab.recipes.squad.prepare import find_files


def texts_in(folder: Path, name: str = "") -> dict[str, str]:
    """Return the settings for a folder that holds squad/ and glove/."""
    find_files(folder)
    return {"data": str(folder)}


def find_texts(folder: Path) -> dict[str, Path]:
    """Return the folder, if it holds what a model is measured on."""
    find_files(folder, train=False)
    return {"data": folder}


def corpus_of(fingerprint: str) -> Corpus | None:
    """Return None: SQuAD and GloVe are not fetched by `thinrnn data`."""
    return None
