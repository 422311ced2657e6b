"""The reader says what the model says."""

import pytest
import torch

from thinrnn.lab.recipes.squad.answering import LONGEST, Answerer, Words
from thinrnn.lab.recipes.squad.batches import Batches
from thinrnn.lab.recipes.squad.data import Types, encode
from thinrnn.lab.recipes.squad.glove import read_glove
from thinrnn.lab.recipes.squad.load import load_model
from thinrnn.lab.recipes.squad.model import BiDAF, best_spans
from thinrnn.lab.recipes.squad.reader import FastReader
from thinrnn.lab.recipes.squad.reading import read_squad
from thinrnn.lab.recipes.squad.vocabulary import make_tables

SHAPE = {"rows": 12, "characters": 9, "vector": 5, "character": 3, "filters": 4, "hidden": (9, 11)}
NARROW, WIDE = (4, 3, 6, 7, 2, 4), (30, 20, 6, 7, 2, 4)


def model_of(six):
    torch.manual_seed(0)
    model = BiDAF(**SHAPE, six=six)
    model.set_glove_(torch.randn(10, 5))
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return model.double().eval()


def texts(words, batch, tokens):
    """Numbers of words (batch, tokens); every second text is shorter."""
    found = torch.randint(1, words, (batch, tokens))
    found[::2, -2:] = 0
    return found


@pytest.mark.parametrize(("six", "narrow"), [(NARROW, True), (WIDE, False)])
def test_a_reader_gives_the_logits_of_its_model(six, narrow):
    model = model_of(six)
    reader = FastReader(model)
    assert (reader.rest is not None) == narrow
    rows, characters = torch.randint(1, 22, (15,)), torch.randint(0, 9, (15, 16))
    rows[0] = 0
    context, question = texts(15, 4, 11), texts(15, 4, 6)
    asked = rows[question], characters[question]
    with torch.no_grad():
        words = reader.words(rows, characters)
        wanted = model(rows[context], characters[context], *asked)
        found = reader(words, context, question)
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)

        about = torch.tensor([1, 1, 3, 0])  # two questions about one context
        wanted = model(rows[context[about]], characters[context[about]], *asked)
        found = reader(words, context, question, about)
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_answers_are_those_of_the_model_whether_words_are_known_or_new(finished, data):
    dev, glove = data / "squad/dev-v1.1.json", data / "glove/glove.6d.txt"
    paragraphs, _ = read_squad(dev)
    types = Types()
    split, _ = encode(paragraphs, types, keep_texts=True)
    rows, vectors = read_glove(glove, {token.lower() for token in types.numbers})
    loaded = load_model(finished.path / "model", vectors)
    tables = make_tables(types.numbers, loaded.vocabulary, rows, vectors)
    inputs = Batches(split, tables, torch.device("cpu")).take(torch.arange(len(split)))
    first, last = best_spans(*loaded.model(*inputs), LONGEST)
    wanted = [split.text(q, i, j) for q, (i, j) in enumerate(zip(first, last, strict=True))]

    contexts = [p.context for p in paragraphs for _ in p.questions]
    questions = [q.text for p in paragraphs for q in p.questions]
    answerer = Answerer(Words(FastReader(loaded.model), loaded.vocabulary, rows, vectors))
    half = len(contexts) // 2  # in two goes, so that the second meets known words and new ones
    new = answerer.answer(contexts[:half], questions[:half])
    new += answerer.answer(contexts[half:], questions[half:])
    assert [answer.text for answer in new] == wanted
    assert [c[a.start : a.end] for c, a in zip(contexts, new, strict=True)] == wanted
    assert [a.text for a in answerer.answer(contexts, questions)] == wanted
