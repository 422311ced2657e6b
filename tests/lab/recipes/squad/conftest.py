"""A hand-made reading task: a folder with squad/ and glove/ of a few dozen words."""

import gzip
import json
import random

import pytest

from thinrnn.lab import driver
from thinrnn.lab.recipes.squad import recipe as recipe_module
from thinrnn.lab.recipes.squad.model import SIX
from thinrnn.lab.recipes.squad.recipe import RECIPE
from thinrnn.lab.recipes.squad.selection import find_plan
from thinrnn.lab.recipes.squad.settings import SquadSettings
from thinrnn.lab.run.progress import Silent

NAMES = ["Anna", "Bert", "Clara", "Dora", "Emil", "Fritz", "Greta", "Hans"]
THINGS = ["a red ball", "an old hat", "the green book", "3.5 apples", "U.S. stamps", "two keys"]


def story(dice, number):
    """A paragraph in which people own things, with a question about each of them."""
    people = dice.sample(NAMES, k=dice.randint(2, 4))
    context, qas = "", []
    for person in people:
        thing = dice.choice(THINGS)
        context += f"{person} owns "
        qas.append(
            {
                "id": f"{number}-{person}",
                "question": f"What does {person} own?",
                "answers": [{"answer_start": len(context), "text": thing}] * 2,
            }
        )
        context += f"{thing}. "
    return {"context": context.strip(), "qas": qas}


def stories(seed, paragraphs):
    dice = random.Random(seed)
    return {"data": [{"paragraphs": [story(dice, n) for n in range(paragraphs)]}]}


def write_data(folder, train, dev):
    (folder / "squad").mkdir(parents=True)
    (folder / "glove").mkdir()
    (folder / "squad/train-v1.1.json.gz").write_bytes(gzip.compress(json.dumps(train).encode()))
    (folder / "squad/dev-v1.1.json").write_text(json.dumps(dev))
    dice = random.Random(0)
    words = "what does own owns red ball old hat green book apples stamps two keys . ? the an"
    lines = [f"{w} " + " ".join(f"{dice.gauss(0, 1):.4f}" for _ in range(6)) for w in words.split()]
    (folder / "glove/glove.6d.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A folder with 60 paragraphs to train on, and 12 more."""
    return write_data(tmp_path_factory.mktemp("data") / "all", stories(1, 60), stories(2, 12))


@pytest.fixture
def make_data(tmp_path):
    """Write a data folder with other training data, given as JSON values."""
    return lambda train: write_data(tmp_path / "data", train, stories(2, 12))


@pytest.fixture
def some_stories():
    return stories(5, 4)


TINY = {
    "more_than": 3,
    "characters_more_than": 3,
    "character": 3,
    "filters": 4,
    "hidden": (5, 4),
    "six": (6,) * 6,
    "steps": 9,
    "eval_every": 3,
    "batch": 8,
    "lr": 0.01,
    "gate_lr": 0.1,
    "ema": 0.9,
    "target_params": 0.85,
    "context_step": 8,
    "question_step": 8,
    "log_every": 2,
    "checkpoint_steps": 2,
    "checkpoint_seconds": 1e9,
    "tensorboard": False,
    "device": "cpu",
    "threads": 1,
    "bench_steps": 4,
    "bench_seconds": 0.0,
}


@pytest.fixture
def tiny(data):
    """SquadSettings of a run with three rounds of three steps in each phase."""
    return lambda **changes: SquadSettings(**{**TINY, "data": str(data), **changes})


@pytest.fixture(scope="session")
def tiny_plans(data):
    """The plans of the tiny model by `select`; to find them takes some seconds."""
    plan = find_plan(RECIPE.build(*_model_of(data)), "recurrent")
    return {"recurrent": plan, "six": plan.only(*(f"{name}.l0" for name in SIX))}


@pytest.fixture
def known_plan(tiny_plans, monkeypatch):
    """Runs use the plan that was found before."""
    monkeypatch.setattr(recipe_module, "find_plan", lambda model, select: tiny_plans[select])


def _model_of(data):
    settings = SquadSettings(**{**TINY, "data": str(data)})
    return settings, RECIPE.load_data(settings, Silent())


@pytest.fixture(scope="session")
def finished(data, tiny_plans, tmp_path_factory):
    """A whole run: dense, gated and control."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    settings = SquadSettings(**{**TINY, "data": str(data)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe_module, "find_plan", lambda model, select: tiny_plans[select])
        return driver.start(RECIPE, settings, folder, preset="squad-paper", progress=Silent())
