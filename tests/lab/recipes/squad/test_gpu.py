"""Training on a GPU: graphs of steps do what the steps do, gates close there too."""

import pytest

from thinrnn.lab import driver
from thinrnn.lab.recipes.squad.recipe import RECIPE
from thinrnn.lab.run.progress import Silent

pytestmark = pytest.mark.gpu
ON_GPU = {"device": "cuda", "steps": 24, "eval_every": 8, "context_step": 64}


def test_graphed_steps_end_where_plain_steps_end(tiny, tmp_path):
    still = {"dropout": 0.0, "character_dropout": 0.0, "precision": "float32"}
    reached = []
    for graphs in (False, True):
        settings = tiny(phases=("dense",), cuda_graphs=graphs, **ON_GPU, **still)
        run = driver.start(RECIPE, settings, tmp_path / str(graphs), preset=None, progress=Silent())
        reached.append(run.summary("dense"))
    plain, graphed = reached
    assert graphed["valid_loss"] == pytest.approx(plain["valid_loss"], rel=1e-2)
    assert graphed["memory"] > 0


@pytest.mark.parametrize(
    "pressure",
    [{}, {"target_params": None, "l0": 1e-3}, {"target_params": None, "lasso": 1e-3}],
)
def test_gates_close_in_bf16_under_graphs(tiny, known_plan, tmp_path, pressure):
    settings = tiny(phases=("gated",), **ON_GPU, **pressure)
    small = driver.start(
        RECIPE, settings, tmp_path / "run", preset=None, progress=Silent()
    ).summary("small")
    assert small["difference"] < 1e-3 and 0 <= small["em"] <= 100
