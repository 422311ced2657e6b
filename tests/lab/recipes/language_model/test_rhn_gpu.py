"""Recurrent highway networks in training on a GPU: a captured step does what the plain one does."""

import pytest
import torch

import thinrnn
from thinrnn.lab import driver
from thinrnn.lab.recipes.language_model import evaluate
from thinrnn.lab.recipes.language_model.evaluate import mean_loss
from thinrnn.lab.recipes.language_model.model import LanguageModel
from thinrnn.lab.recipes.language_model.recipe import RECIPE
from thinrnn.lab.run.progress import Silent

pytestmark = pytest.mark.gpu
HIGHWAY = {
    "cell": "rhn",
    "depth": 3,
    "embedding": 21,
    "hidden": (21,),
    "tied": True,
    "locked": True,
}


@pytest.mark.parametrize("phase", ["dense", "gated"])
def test_graphs_give_the_losses_of_plain_steps(tiny, begin, phase):
    losses = []
    for graphs in (False, True):
        settings = tiny(
            **HIGHWAY, device="cuda", cuda_graphs=graphs, precision="float32", dropout=0.0
        )
        training = begin(settings, phase, "cuda")
        for _ in range(3):
            while not training.epoch_is_over:
                training.take_step()
            losses.append(training.means.of_epoch()[0])
            if training.pruning.is_on:
                training.shrink()
            training.begin_epoch()
    assert losses[:3] == pytest.approx(losses[3:], rel=1e-4)


def test_a_whole_run_in_bf16_with_graphs(tiny, tmp_path):
    dropouts = {"word_dropout": 0.1, "recurrent_dropout": 0.1}
    settings = tiny(**HIGHWAY, **dropouts, device="cuda", epochs=4)
    finished = driver.start(RECIPE, settings, tmp_path / "run", preset=None, progress=Silent())
    small = finished.summaries()["small"]
    assert small["difference"] < 1e-4 and small["valid_perplexity"] < 100


@pytest.mark.parametrize("cell", ["rhn", "lstm", "gru"])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("width", [21, 830])
def test_scores_by_graphs_are_those_without(cell, gated, width, monkeypatch):
    torch.manual_seed(0)
    model = LanguageModel(
        40, cell=cell, depth=10, embedding=width, hidden=(width,), tied=True, init_range=0.1
    )
    if gated:
        example = torch.zeros(3, 2, dtype=torch.long)
        thinrnn.attach_(model, thinrnn.find_groups(model, example))
    model = model.cuda()
    tokens = torch.randint(40, (3000,), dtype=torch.int32)
    graphed = [mean_loss(model, tokens, batch=5, start=0) for _ in range(3)]
    monkeypatch.setattr(evaluate, "GraphedStep", lambda step, *inputs, warmup: step)
    plain = mean_loss(model, tokens, batch=5, start=0)
    assert graphed == pytest.approx([plain] * 3, rel=1e-5)
