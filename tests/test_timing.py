import time

import pytest
import torch
from torch import nn

from thinrnn.errors import ExampleError
from thinrnn.timing import benchmark


def sleeper(seconds):
    return lambda x: time.sleep(seconds)


def test_ratios_are_against_the_first_model():
    timing = benchmark(
        {"slow": sleeper(0.02), "fast": sleeper(0.002)}, torch.zeros(1), seconds=0, rounds=5
    )
    assert list(timing) == ["slow", "fast"]
    assert timing.speedup("slow") == 1
    assert timing.speedup("fast") == pytest.approx(timing["slow"].median / timing["fast"].median)
    assert timing["slow"].low <= timing["slow"].median <= timing["slow"].high
    assert timing["slow"].median >= 20  # milliseconds
    assert "speed-up" in str(timing) and "1.00x" in str(timing)


def test_calls_are_interleaved_so_that_a_busy_machine_meets_all_models_alike():
    seen = []

    def noted(name):
        def call(x):
            seen.append(name)
            time.sleep(0.002)

        return call

    benchmark({"a": noted("a"), "b": noted("b")}, torch.zeros(1), seconds=0, rounds=4)
    assert seen[-8:] == ["a", "b", "b", "a", "a", "b", "b", "a"]


def test_models_and_threads_are_left_as_they_were():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout())
    model[1].eval()
    before, used = torch.get_num_threads(), []

    def probe(x):
        used.append(torch.get_num_threads())
        assert not torch.is_grad_enabled()

    benchmark({"model": model, "probe": probe}, torch.zeros(2, 3), threads=2, seconds=0, rounds=1)
    assert set(used) == {2} and torch.get_num_threads() == before
    assert model.training and not model[1].training


def test_a_model_that_does_not_run_on_the_example_is_named():
    with pytest.raises(ExampleError, match="'big' does not run on the example"):
        benchmark({"big": nn.Linear(9, 9)}, torch.zeros(1, 3))
    with pytest.raises(ExampleError, match="no model to time"):
        benchmark({}, torch.zeros(1))


def test_examples_may_be_tuples_and_dictionaries():
    def model(x, *, scale=1):
        return x * scale

    benchmark({"m": model}, (torch.ones(1),), seconds=0, rounds=1)
    benchmark({"m": model}, {"x": torch.ones(1), "scale": 2}, seconds=0, rounds=1)
