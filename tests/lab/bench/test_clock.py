import time

import pytest

from thinrnn.lab.bench.clock import Clock, cold_clock, largest_cache, warm_clock


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
    monkeypatch.setattr("thinrnn.lab.bench.clock.time", found)
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
    monkeypatch.setattr("thinrnn.lab.bench.clock.CACHES", tmp_path)
    assert largest_cache() == 32 << 20
    monkeypatch.setattr("thinrnn.lab.bench.clock.CACHES", tmp_path / "nowhere")
    assert largest_cache() > 0
