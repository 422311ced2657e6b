"""A hand-made reading task: a folder with squad/ and glove/ of a few dozen words."""

import gzip
import json
import random

import pytest

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


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def make_data(tmp_path):
    """Write a data folder with other training data, given as JSON values."""
    return lambda train: write_data(tmp_path / "data", train, stories(2, 12))


@pytest.fixture
def some_stories():
    return stories(5, 4)
