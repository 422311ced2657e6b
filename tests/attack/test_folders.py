"""No file of a run or model folder can hurt: one line and exit code 2, or nothing at all."""

import json
import shutil
import sys

import pytest
from attack.conftest import attempt, describe, limited
from attack.hostile import COMMANDS, corpus

import thinrnn
from thinrnn.errors import ThinRNNError
from thinrnn.lab.recipes.language_model.model import LanguageModel

pytestmark = pytest.mark.extended

MORE = {
    "bench": ["--runtimes", "eager", "--seconds", 0, "--batch", 1, "--steps", 1],
    "generate": ["--tokens", 2],
    "prune": ["--params", 0.8, "--calls", 4],
}


def tried(command, run, dense):
    """Return how a command ended, or `thinrnn.load_` in Python."""
    if command == "load_":
        return limited(load, run / "model", dense)
    name, *options = command.split()
    if name == "train" and (run / "small.json").exists():
        (run / "small.json").unlink()  # so that its last checkpoint is read
    more = {"compact": ["--out", run / "out"], "export": ["--onnx", run / "x.onnx"], **MORE}
    return attempt(name, *options, run.parent if name == "list" else run, *more.get(name, []))


def load(folder, dense):
    try:
        thinrnn.load_(LanguageModel(**dense), folder)
    except ThinRNNError as error:
        print(f"thinrnn: {error}", file=sys.stderr)
        sys.exit(2)


@pytest.mark.parametrize("name", COMMANDS)
def test_hostile_folders_are_refused_in_one_line(name, good_run, tmp_path, many, count):
    dense = json.loads((good_run / "model/recipe.json").read_text())["model"]
    found, cases = [], corpus(good_run, name, sample=many(8, 60))
    for case in cases:
        run = tmp_path / "run"
        shutil.copytree(good_run, run)
        case.change(run)
        # a model whose numbers are too large has no perplexity, which eval says with exit code 1;
        # a resumed training says whether it keeps its promises
        says_more = "safetensors" in name and case.command.startswith(("eval", "prune"))
        says_more |= case.command.startswith("train")
        faults = tried(case.command, run, dense).faults((0, 1, 2) if says_more else (0, 2))
        found += [f"{case.command} after {case.name}: {fault}" for fault in faults]
        shutil.rmtree(run)
    count("hostile folders", len(cases))
    assert not found, describe(found)
