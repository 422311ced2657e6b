"""Models in folders: written so that they can be read without the run that made them.

model/model.safetensors, thinrnn.json    the weights and what was cut; no GloVe
      vocabulary.json                    words with trained rows, and characters
      recipe.json                        how the dense model is built
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

import thinrnn
from thinrnn._schema import Schema
from thinrnn._surgery.save import Precision
from thinrnn.errors import FolderError
from thinrnn.lab.model_folder import built, load_weights, read_file, save_weights
from thinrnn.lab.recipes.squad.batches import Batches
from thinrnn.lab.recipes.squad.data import Types, encode
from thinrnn.lab.recipes.squad.evaluate import read_spans
from thinrnn.lab.recipes.squad.metrics import em_and_f1
from thinrnn.lab.recipes.squad.model import BiDAF, example, weights_of
from thinrnn.lab.recipes.squad.prepare import find_files
from thinrnn.lab.recipes.squad.reader import FastReader
from thinrnn.lab.recipes.squad.reading import read_squad
from thinrnn.lab.recipes.squad.vocabulary import SquadVocabulary, tables_from
from thinrnn.lab.run.errors import InputError
from thinrnn.lab.run.files import write_json
from thinrnn.lab.run.progress import Progress

EVAL_BATCH = 20
Size = Annotated[int, Field(ge=1, le=10**7)]


class ReaderArguments(Schema):
    """The arguments of the dense model; what is not there has its default."""

    rows: Size
    characters: Size
    vector: Size = 100
    character: Size = 8
    filters: Size = 100
    width: Size = 5
    hidden: Size | tuple[Size, Size] = 100
    six: tuple[Size, Size, Size, Size, Size, Size] = (100,) * 6


class ReaderFile(Schema):
    """recipe.json."""

    recipe: Literal["squad"]
    model: ReaderArguments


@dataclass(frozen=True)
class LoadedReader:
    """A model as it was saved, ready to be used."""

    model: nn.Module
    vocabulary: SquadVocabulary

    def example(self, batch: int, steps: int) -> tuple[Tensor, ...]:
        """Return an input of the given size."""
        return example(batch, steps)


def save_model(
    model: nn.Module,
    folder: Path,
    arguments: dict[str, Any],
    vocabulary: SquadVocabulary,
    precision: Precision | None = None,
) -> None:
    """Write a model with all that `load_model` needs; `arguments` build the dense model."""
    save_weights(model, folder, precision)
    write_json(folder / "vocabulary.json", vocabulary.model_dump())
    write_json(folder / "recipe.json", {"recipe": "squad", "model": arguments})


def read_vocabulary(folder: Path) -> SquadVocabulary:
    """Return the words of the model in a folder."""
    return read_file(folder / "vocabulary.json", SquadVocabulary)


def vector_size(folder: Path) -> int:
    """Return how many numbers a word's vector must have for the model of a folder."""
    return read_file(folder / "recipe.json", ReaderFile).model.vector


def load_model(folder: str | Path, glove: Tensor | None = None) -> LoadedReader:
    """Return the model and vocabulary of a folder; without GloVe's vectors it knows few words."""
    folder = Path(folder)
    vocabulary = read_vocabulary(folder)
    recipe = read_file(folder / "recipe.json", ReaderFile)
    if (vocabulary.rows, vocabulary.character_rows) != (recipe.model.rows, recipe.model.characters):
        raise FolderError(
            f"'{folder / 'vocabulary.json'}' is damaged: it has {vocabulary.rows} words and "
            f"{vocabulary.character_rows} characters, but recipe.json says {recipe.model.rows} and "
            f"{recipe.model.characters}."
        )
    model = built(lambda: BiDAF(**recipe.model.model_dump(exclude_unset=True)), folder)
    if glove is not None:
        model.set_glove_(glove)
    return LoadedReader(load_weights(model, folder).eval(), vocabulary)


def score_model(
    folder: Path,
    files: dict[str, Path],
    *,
    config: dict[str, Any] | None = None,
    progress: Progress,
) -> dict[str, Any]:
    """Return EM and F1 on the dev set of a data folder, or on that of the run."""
    data = files.get("data")
    if data is None:
        if config is None:
            raise InputError(f"there is no data to measure {folder} on: give --data DIR.")
        data = Path(config["settings"]["data"])
    found = find_files(data, train=False, size=vector_size(folder))
    vocabulary, types = read_vocabulary(folder), Types()
    paragraphs, problems = read_squad(found.dev)
    split, wrong = encode(paragraphs, types, keep_texts=True)
    for text, count in (problems + wrong).items():
        progress.line(f"dev: {count:,} x {text}")
    tables = tables_from(types.numbers, vocabulary, found.glove)
    loaded = load_model(folder, tables.glove)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    progress.line(f"dev: {len(split):,} questions about {len(paragraphs):,} paragraphs")
    batches = Batches(split, tables, device)
    assert isinstance(loaded.model, BiDAF)
    reader = FastReader(loaded.model.to(device))
    spans = read_spans(reader, split, batches, batch=EVAL_BATCH, progress=progress)
    em, f1 = em_and_f1(split.texts(spans), split.references)
    return {"em": em, "f1": f1, "questions": len(split), **sizes(loaded.model.cpu())}


def sizes(model: nn.Module) -> dict[str, int]:
    """Return weights as the paper counts them, parameters, mult-adds per token and bytes."""
    count = thinrnn.count(model)
    found = weights_of(model)
    return {
        "weights": found["weights"],
        "weights_without_tables": found["others"],
        "params": count.params,
        "macs": count.macs,
        "bytes": count.bytes,
    }
