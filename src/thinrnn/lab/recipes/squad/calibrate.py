"""Questions for pruning without training: some from all over the training set."""

from pathlib import Path
from typing import Any

import torch

from thinrnn.lab.recipes.squad.batches import Batches, Inputs, by_length, usable
from thinrnn.lab.recipes.squad.data import Split, Types, encode
from thinrnn.lab.recipes.squad.load import load_model, read_vocabulary, vector_size
from thinrnn.lab.recipes.squad.model import BiDAF
from thinrnn.lab.recipes.squad.prepare import find_files
from thinrnn.lab.recipes.squad.reading import read_squad
from thinrnn.lab.recipes.squad.selection import find_plan
from thinrnn.lab.recipes.squad.settings import SquadSettings
from thinrnn.lab.recipes.squad.vocabulary import Tables, tables_from
from thinrnn.lab.run import InputError
from thinrnn.lab.run.progress import Progress
from thinrnn.plan import Plan

BATCH = 10  # questions of a call


def calibrate(
    folder: Path,
    data: Path | None,
    *,
    config: dict[str, Any] | None,
    calls: int,
    progress: Progress,
) -> tuple[BiDAF, Plan, list[Inputs]]:
    """Return the model of a folder, its groups, and calls with questions of the training set."""
    if data is None:
        assert config is not None
        data = Path(config["settings"]["data"])
    files = find_files(data, size=vector_size(folder))
    assert files.train is not None
    paragraphs, _ = read_squad(files.train)
    some = paragraphs[:: max(1, len(paragraphs) // (calls * BATCH))]  # has a question or more each
    types = Types()
    split, _ = encode(some, types, keep_texts=False)
    tables = tables_from(types.numbers, read_vocabulary(folder), files.glove)
    chosen = calls_of(split, tables, calls)
    if not chosen:
        raise InputError(f"{files.train} has no question that is short enough to calibrate on.")
    progress.line(f"train: {sum(len(call[0]) for call in chosen):,} questions to calibrate on")
    model = load_model(folder, tables.glove).model
    assert isinstance(model, BiDAF)
    return model, find_plan(model, "all"), chosen


def calls_of(split: Split, tables: Tables, calls: int) -> list[Inputs]:
    """Return calls with random questions, those of one call of like length."""
    limits = SquadSettings()
    found = usable(split, most_context=limits.most_context, most_question=limits.most_question)
    generator = torch.Generator().manual_seed(0)
    chosen = found[torch.randperm(len(found), generator=generator)[: calls * BATCH]]
    batches = Batches(split, tables, torch.device("cpu"))
    groups = [chosen[part] for part in by_length(split.context_lengths[chosen], BATCH)]
    order = torch.randperm(len(groups), generator=generator).tolist()
    return [batches.take(groups[i]) for i in order]
