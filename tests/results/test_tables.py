"""Tables: the paper's figure, ours, and the difference."""

import pytest

from tools.results.rows import ABLATION, HEADLINES, LSTM, READERS, ROWS
from tools.results.runs import Results
from tools.results.tables import READING, difference, headline_table, own_table, paper_table


def cells(table, label):
    lines = (line.strip("| ").split(" | ") for line in table.splitlines())
    return next(line for line in lines if line[0] == label)


def test_ours_stands_beside_the_papers(make):
    runs = {
        "ptb-paper": make(small=(80.5, 77.5, 6_150_000), control=(82.0, 78.6, 6_150_000)),
        "ptb-dense-sgd": make(dense=(84.0, 79.0, 66_500_000)),
    }
    table = paper_table(LSTM, Results(runs))
    sizes = ["251-296-247"] * 2
    assert cells(table, "neuron selection") == [
        *("neuron selection", "target", "81.62, 78.08", "80.50, 77.50", "-0.58"),
        *("6.16M", "6.15M", *sizes),
    ]
    dense = cells(table, "dense, plain SGD")
    assert dense[4] == "**+0.43**" and dense[6] == "**66.5M**"  # worse, and heavier
    assert cells(table, "same sizes, from scratch")[2:5] == ["-", "82.00, 78.60", "-"]
    assert cells(table, "ISS")[3] == "not run yet"
    linked = own_table(LSTM, Results(runs), folder="results")
    assert "[neuron selection](results/ptb/ptb-paper.json)" in linked


def test_for_readers_more_is_better(make):
    run = make(small=(66.5, 75.5, 950_000))
    for model in run["models"].values():
        model.update(em=66.5, f1=75.5)
    line = cells(paper_table(READERS, Results({"squad-paper": run}), READING), "neuron selection")
    assert line[3:5] == ["66.50, 75.50", "**-0.19**"]


def test_the_row_with_the_papers_copying_error_is_compared_on_valid(make):
    results = Results({"ptb-ablation-5": make(small=(90.0, 86.0, 5_000_000))})
    ours = results.figures("ptb-ablation-5")
    assert difference(ABLATION[4], ours) == "-0.83 (valid)"


def test_the_headlines_are_the_test_scores_of_their_runs(make):
    names = {name for row in HEADLINES for name in (row.dense, row.selection, row.scratch)}
    runs = {
        name: make(dense=(70, 75.1, 6e7), small=(70, 76.2, 6e6), control=(70, 77.3, 6e6))
        for name in names
    }
    line = cells(headline_table(Results(runs)), "LSTM: perplexity")
    assert line[1:7] == ["78.57", "78.65", "78.08", "75.10", "76.20", "77.30"]
    assert line[7:] == ["6.16M, 6.00M", "target"]
    assert len(headline_table(Results({})).splitlines()) == 2 + len(HEADLINES)


def test_the_papers_numbers_of_weights_follow_from_its_sizes():
    for row in (*LSTM, *ABLATION):
        if row.paper is not None:
            embedding, first, second = map(int, row.paper.sizes.split("-"))
            weights = 10_000 * (embedding + second)
            weights += 4 * first * (embedding + first) + 4 * second * (first + second)
            assert row.paper.weights == pytest.approx(weights, rel=1e-3)


def test_every_row_has_a_published_run(pytestconfig):
    results = Results.read(pytestconfig.rootpath / "results")
    assert all(results.figures(run, kind) for run, kind in ROWS)
