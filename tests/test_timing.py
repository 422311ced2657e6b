import time

import pytest
import torch
from torch import nn

from thinrnn.errors import ExampleError
from thinrnn.timing import (
    TOO_NOISY,
    Benchmark,
    Clock,
    benchmark,
    cold_clock,
    largest_cache,
    timing_of,
    warm_clock,
)


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


def test_calls_of_the_models_are_interleaved():
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


@pytest.mark.parametrize(("times", "is_noisy"), [([9, 10, 11], False), ([10, 10, 40], True)])
def test_times_that_vary_too_much_are_not_to_be_compared(times, is_noisy):
    found = Benchmark({"dense": timing_of([20, 20, 20], 1), "small": timing_of(times, 1)}, 1)
    assert found.is_noisy == found["small"].is_noisy == is_noisy
    assert (TOO_NOISY in str(found)) == is_noisy


def test_quick_calls_are_repeated_and_slow_ones_are_not():
    clock = Clock({"quick": lambda: None, "slow": lambda: time.sleep(0.002)})
    assert clock.repeats["quick"] > 10 and clock.repeats["slow"] == 1
    assert clock.round()["slow"] >= 2  # milliseconds


def test_every_round_begins_with_another_one():
    seen = []
    calls = {name: lambda name=name: seen.append(name) for name in "abc"}
    clock = Clock(calls, shortest=0)
    seen.clear()
    for _ in range(3):
        clock.round()
    assert "".join(seen) == "abcbcacab"


class Time:
    """A clock that goes on when it is told to, whatever the machine does meanwhile."""

    now = 0.0

    def perf_counter(self):
        return self.now

    def call(self, *seconds):
        """Return a call that takes so long, each time the next of them, then always the last."""
        left = list(seconds)

        def take_time():
            self.seen.append(left[0])
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return take_time


@pytest.fixture
def times(monkeypatch):
    found = Time()
    found.seen = []
    monkeypatch.setattr("thinrnn.timing.time", found)
    return found


def test_a_warm_call_comes_after_others_like_it_and_a_cold_one_after_a_flush(times):
    calls = {"a": times.call(0.03), "b": times.call(0.06)}
    for make, count in ((warm_clock, 5), (lambda calls: cold_clock(calls, 1024), 2)):
        clock = make(calls)
        times.seen.clear()
        clock.round()
        assert len(times.seen) == count


def test_a_call_that_takes_long_is_not_repeated_to_be_warm(times):
    clock = warm_clock({"slow": times.call(0.15)})
    times.seen.clear()
    clock.round()
    assert len(times.seen) == 1


@pytest.mark.parametrize("held_up", [(0.5, 0.03), (0.03, 0.5, 0.03)])
def test_a_call_that_was_held_up_once_is_still_warmed(times, held_up):
    clock = warm_clock({"quick": times.call(*held_up)})
    times.seen.clear()
    assert clock.round() == {"quick": pytest.approx(30)}
    assert len(times.seen) == 3


def test_the_largest_cache_counts(monkeypatch, tmp_path):
    for index, size in enumerate(["48K", "2048K", "32M"]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size + "\n")
    monkeypatch.setattr("thinrnn.timing.CACHES", tmp_path)
    assert largest_cache() == 32 << 20
    monkeypatch.setattr("thinrnn.timing.CACHES", tmp_path / "nowhere")
    assert largest_cache() > 0
