"""The benchmark of the recipe's throughput still measures what it says."""

import runpy
from pathlib import Path

from thinrnn.lab.recipes.language_model.corpus import load_text

BENCHMARK = Path(__file__).parents[4] / "benchmarks/throughput.py"


def test_the_benchmark_runs(tiny):
    benchmark = runpy.run_path(str(BENCHMARK))
    settings = tiny(epochs=1)
    steps = benchmark["compare_steps"](settings, load_text(settings), 7)
    assert steps["ratio"] == steps["recipe"] / steps["bare"]
    runs = benchmark["whole_runs"](settings)
    assert runs["ratio"] == runs["pruned"] / runs["dense"]
