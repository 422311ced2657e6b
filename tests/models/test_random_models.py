"""Whatever find_groups offers in a random model can be cut, on other inputs too."""

import warnings

import pytest
import torch
from models import road
from models.random_model import STEPS, RandomModel

import thinrnn

MORE = [pytest.param(seed, marks=pytest.mark.extended) for seed in range(15, 40)]


# The last ones have code that needs an even number of neurons, or two groups of one size.
@pytest.mark.parametrize("seed", [*range(15), *MORE, 53, 306, 342, 392, 666])
def test_what_is_offered_can_be_cut(seed: int) -> None:
    torch.manual_seed(seed)
    model = RandomModel(seed).double()
    example = torch.randn(3, STEPS, model.inputs, dtype=torch.float64)
    plan = thinrnn.find_groups(model, example)
    assert plan.groups
    thinrnn.attach_(model, plan)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(3):
        road.set_gates(model, generator)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            small = thinrnn.compact(model)
        thinrnn.verify(model, small, example)
        thinrnn.verify(model, small, torch.randn(2, STEPS, model.inputs, dtype=torch.float64))
