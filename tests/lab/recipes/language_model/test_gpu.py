"""Training on a GPU: a captured step does what the plain one does."""

import pytest

from thinrnn.lab import driver
from thinrnn.lab.recipes.language_model.recipe import RECIPE
from thinrnn.lab.run.progress import Silent

pytestmark = pytest.mark.gpu


RARE = {"tied": True, "embedding": 12, "hidden": (14, 12), "rare": 20, "rare_size": 6}


@pytest.mark.parametrize("phase", ["dense", "gated"])
@pytest.mark.parametrize("optimizer", ["adam", "nt-asgd"])
@pytest.mark.parametrize("model", [{}, RARE])
def test_graphs_give_the_losses_of_plain_steps(tiny, begin, phase, optimizer, model):
    losses = []
    for graphs in (False, True):
        rule = {"dropout": 0.0, "optimizer": optimizer}
        settings = tiny(device="cuda", cuda_graphs=graphs, precision="float32", **rule, **model)
        training = begin(settings, phase, "cuda")
        training.optimizer.start_averaging()
        for _ in range(3):
            while not training.epoch_is_over:
                training.take_step()
            losses.append(training.means.of_epoch()[0])
            if training.pruning.is_on:
                training.shrink()
            training.begin_epoch()
    assert losses[:3] == pytest.approx(losses[3:], rel=1e-4)


@pytest.mark.parametrize("model", [{}, RARE])
def test_a_whole_run_in_bf16_with_graphs(tiny, tmp_path, model):
    settings = tiny(device="cuda", epochs=4, **model)
    finished = driver.start(RECIPE, settings, tmp_path / "run", preset=None, progress=Silent())
    small = finished.summaries()["small"]
    assert small["difference"] < 1e-4 and small["valid_perplexity"] < 100
