"""The benchmark of the recipe's throughput still measures what it says."""

from benchmarks import throughput
from thinrnn.lab.recipes.language_model.corpus import load_text


def test_the_benchmark_runs(tiny):
    settings = tiny(epochs=1)
    steps = throughput.compare_steps(settings, load_text(settings), 7)
    assert steps["ratio"] == steps["recipe"] / steps["bare"]
    runs = throughput.whole_runs(settings)
    assert runs["ratio"] == runs["pruned"] / runs["dense"]
