import time

from thinrnn.bench.clock import Clock, cold_clock, largest_cache, warm_clock


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


def test_a_warm_call_comes_after_others_like_it_and_a_cold_one_after_a_flush():
    seen = []
    calls = {"a": lambda: time.sleep(0.06), "b": lambda: seen.append(time.sleep(0.06))}
    for clock, times in ((warm_clock(calls), 2), (cold_clock(calls, 1024), 1)):
        seen.clear()
        clock.round()
        assert len(seen) == times


def test_a_call_that_takes_long_is_not_repeated_to_be_warm():
    seen = []
    clock = warm_clock({"slow": lambda: seen.append(time.sleep(0.15))})
    seen.clear()
    clock.round()
    assert len(seen) == 1


def test_the_largest_cache_counts(monkeypatch, tmp_path):
    for index, size in enumerate(["48K", "2048K", "32M"]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size + "\n")
    monkeypatch.setattr("thinrnn.bench.clock.CACHES", tmp_path)
    assert largest_cache() == 32 << 20
    monkeypatch.setattr("thinrnn.bench.clock.CACHES", tmp_path / "nowhere")
    assert largest_cache() > 0
