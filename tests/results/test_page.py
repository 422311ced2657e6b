"""RESULTS.md says what the files say, and says plainly where ours is worse."""

import dataclasses
import json
from pathlib import Path

import pytest

from thinrnn.lab import recipes
from tools.results import read
from tools.results.judge import judge, trend
from tools.results.page import pages, results_page, write_pages
from tools.results.read import Results
from tools.results.reading import READING
from tools.results.rows import ABLATION, BEYOND, HIGHWAY, HIGHWAY_CURVE, LSTM

ROOT = Path(__file__).parent.parent.parent
ALL = (*LSTM, *ABLATION, *HIGHWAY, *HIGHWAY_CURVE, *BEYOND)
ROWS = {(row.name, row.kind): row for row in ALL}


def test_the_pages_of_this_repository_are_up_to_date():
    for path, content in pages(ROOT).items():
        assert path.read_text() == content, f"{path.name}: run python -m thinrnn.results"


def test_presets_say_what_their_runs_reached():
    results = Results.read(ROOT / "results")
    for name, preset in recipes.presets().items():
        if name in results.runs:
            assert preset.expected == read.expected(results.runs[name])
        elif name.startswith("ptb-"):
            assert preset.expected == ""


# What may differ between a published run and its preset: where it ran, what it was given.
GIVEN = {"train", "valid", "test", "teacher", "phases", "seed"}
GIVEN |= {"checkpoint_seconds", "tensorboard", "bench_seconds"}
# What does not matter to a dense model; ptb-teacher was run as the dense phase of ptb-thin.
GATES = {"gate_lr", "small_dropout", "target_time"}


def test_published_runs_have_the_settings_of_their_presets():
    results = Results.read(ROOT / "results")
    checked = 0
    for name, preset in recipes.presets().items():
        if name not in results.runs or not name.startswith("ptb-"):
            continue
        today = json.loads(json.dumps(dataclasses.asdict(preset.settings())))
        then = results.runs[name]["settings"]
        # a setting that is newer than the run must be at its default
        default = json.loads(json.dumps(dataclasses.asdict(type(preset.settings())())))
        free = GIVEN | GATES if today["phases"] == ["dense"] else GIVEN
        other = {k for k in today if then.get(k, default[k]) != today[k]} - free
        assert not other, f"{name}: {sorted(other)}"
        checked += 1
    assert checked >= 18


def test_controls_that_are_trained_alone_have_the_shape_of_the_pruned_run():
    results = Results.read(ROOT / "results")
    pairs = {name: f"{name}-scratch" for name in ("ptb-paper", "ptb-thin")}
    for name, control in (pairs | {"ptb-rhn-plain": "ptb-rhn-scratch"}).items():
        settings = recipes.preset(control).settings()
        shape = (settings.embedding, *settings.hidden)
        if settings.tied:  # embedding and last layer are one group there
            shape = shape[:-1]
        sizes = results.figures(name, "small").sizes.split("-")
        assert sorted(map(str, shape)) == sorted(sizes)


def test_stored_models_are_those_of_the_results_and_small():
    runs = Results.read(ROOT / "results").runs
    stored = {name: run["stored"]["bytes"] for name, run in runs.items() if "stored" in run}
    folders = (ROOT / "results/models").iterdir()
    found = {f.name: sum(file.stat().st_size for file in f.iterdir()) for f in folders}
    assert found == stored and max(found.values()) <= 8 * 2**20


def line_of(page, label):
    return next(line for line in page.splitlines() if line.startswith(f"| {label} |"))


def test_rows_that_were_not_run_are_listed_as_such():
    page = results_page(Results({}))
    assert page.count("not yet run") == len(ROWS) + len(READING)
    paper = line_of(page, "neuron selection")
    assert paper == (
        "| neuron selection | 81.62, 78.08 | 251-296-247 | 6.16M | - | - | - | not yet run |"
    )


def test_better_and_worse_are_said_row_by_row(make):
    runs = {
        "ptb-paper": make(small=(80.5, 77.5, 6_150_000), control=(82.0, 78.6, 6_150_000)),
        "ptb-dense-sgd": make(dense=(84.0, 79.0, 66_000_000)),
    }
    page = results_page(Results(runs))
    assert line_of(page, "neuron selection").endswith(
        "| 80.50, 77.50 | 251-296-247 | 6.15M | test 0.58 better than the paper; "
        "test 1.10 better than its control; reached what was asked |"
    )
    dense = line_of(page, "dense, plain SGD")
    assert "test 0.43 worse than the paper" in dense
    assert "missed: valid 84.00, at most 83.57 was asked" in dense and "reached" not in dense
    assert "- dense, plain SGD: test 0.43 worse than the paper; missed: valid" in page
    assert "- neuron selection" not in page
    assert line_of(page, "the same shape from scratch").endswith("| reported |")


@pytest.mark.parametrize(
    ("small", "control", "bad"),
    [
        ((80, 77, 6_160_001), (82, 79, 6_160_001), "missed: 6,160,001 weights, at most 6.16M"),
        ((80, 77, 6e6), (80, 77.4, 6e6), "test 0.40 better than its control, asked: 0.50"),
        ((80, 77, 6e6), (80, 76.0, 6e6), "test 1.00 worse than its control, asked: 0.50"),
        ((81.7, 77, 6e6), (89, 89, 6e6), "missed: valid 81.70, at most 81.60 was asked"),
    ],
)
def test_one_condition_that_is_missed_is_enough(make, small, control, bad):
    results = Results({"ptb-paper": make(small=small, control=control)})
    verdict = judge(ROWS["ptb-paper", "small"], results)
    assert len(verdict.bad) == 1 and verdict.bad[0].startswith(bad)
    assert "reached what was asked" not in verdict.good


def test_what_a_missing_control_would_show_is_not_reached(make):
    alone = Results({"ptb-paper": make(small=(80, 77, 6e6))})
    assert "reached what was asked" not in judge(ROWS["ptb-paper", "small"], alone).good


def test_a_point_of_the_figure_must_be_below_iss_in_its_own_paper(make):
    row = ROWS["ptb-rhn-curve-2", "small"]
    models = {"small": (68, 66.0, 11e6), "control": (69, 67.0, 11e6)}
    verdict = judge(row, Results({"ptb-rhn-curve-2": make(**models)}))
    assert verdict.bad[0] == "test 0.60 worse than ISS in its own paper"
    assert "reached what was asked" not in verdict.good
    models["small"] = (67, 65.0, 11e6)
    verdict = judge(row, Results({"ptb-rhn-curve-2": make(**models)}))
    assert not verdict.bad and verdict.good[-1] == "reached what was asked"


def test_seeds_are_put_together(make):
    tests = (77.0, 78.0, 79.0)
    names = ("ptb-paper", "ptb-paper-seed1", "ptb-paper-seed2")
    runs = {
        name: make(seed=i, small=(80.0 + i, test, 6_100_000 + i))
        for i, (name, test) in enumerate(zip(names, tests, strict=True))
    }
    runs["ptb-paper-scratch"] = make(dense=(90.0, 90.0, 6_100_000))
    results = Results(runs)
    figures = results.figures("ptb-paper", "small")
    assert figures.test == tests and figures.weights == 6_100_002
    page = results_page(results)
    assert "81.00 ± 1.00, 78.00 ± 1.00 (3 seeds)" in line_of(page, "neuron selection")


def test_the_trend_of_the_penalties_is_judged(make):
    def results(*rows):
        return Results(
            {f"ptb-ablation-{k}": make(small=row) for k, row in enumerate(rows, start=1)}
        )

    good = results((80, 77, 9_000_000), (81, 78, 8_000_000), (82, 79, 7_000_000))
    assert trend(ABLATION, good).endswith("weights fall and perplexity rises from row to row.")
    bad = results((80, 77, 9_000_000), (81, 78, 8_000_000), (82, 77.5, 8_500_000))
    assert "weights do not fall and test perplexity does not rise" in trend(ABLATION, bad)
    assert trend(ABLATION, results((80, 77, 9_000_000))) == ""
    good.runs["ptb-ablation-3"]["models"]["small"]["neurons"]["rnn.l0"] = 300
    assert trend(ABLATION, good).endswith(
        "other than there, layer 1 grows from 296 to 300 at 3, 1, 1, 1."
    )


def test_stored_models_time_and_memory_are_listed(make):
    stored = {
        "precision": "int8",
        "bytes": 6_400_000,
        "weights": 6_150_000,
        "valid_perplexity": 80.55,
        "test_perplexity": 77.56,
    }
    page = results_page(Results({"ptb-paper": make(stored=stored, small=(80.5, 77.5, 6_150_000))}))
    assert "| int8 | 6.10 MiB | 6.15M | 80.55, 77.56 |" in page
    assert "| [ptb-paper](results/ptb/ptb-paper.json) | small | 100 | 10.0 | 2.00 | a GPU |" in page


def test_pages_are_written_once_and_the_readme_outside_the_markers_is_left_alone(make, tmp_path):
    (tmp_path / "results/ptb").mkdir(parents=True)
    (tmp_path / "results/speed.json").write_text('{"what": "something else"}')
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- results -->\nold\n<!-- end of results -->\nafter\n")
    assert [path.name for path in write_pages(tmp_path)] == ["RESULTS.md", "README.md"]
    assert "not finished" in readme.read_text()
    run = make(small=(80.5, 77.5, 6_150_000))
    (tmp_path / "results/ptb/ptb-paper.json").write_text(json.dumps(run))
    write_pages(tmp_path)
    text = readme.read_text()
    assert text.startswith("before\n<!-- results -->\n| Penn Treebank |")
    assert text.endswith("\nafter\n")
    assert "| neuron selection | 81.62, 78.08 | 6.16M | 80.50, 77.50 | 6.15M |" in text
    assert write_pages(tmp_path) == []


def test_the_papers_numbers_of_weights_follow_from_its_sizes():
    for row in (*LSTM, *ABLATION):
        if row.paper is not None:
            embedding, first, second = map(int, row.paper.sizes.split("-"))
            weights = 10_000 * (embedding + second)
            weights += 4 * first * (embedding + first) + 4 * second * (first + second)
            assert row.paper.weights == pytest.approx(weights, rel=1e-3)


def test_the_expected_text_of_a_preset(make):
    run = make(small=(80.512, 77.498, 6_150_000), control=(82.0, 78.6, 6_150_000))
    assert read.expected(run) == "80.51 / 77.50, 6.15M weights"
    assert read.expected(make(dense=(1.0, 2.0, 66_000_000))) == "1.00 / 2.00, 66.0M weights"
    taught = {**run, "settings": {"teacher": ["teacher"]}}
    assert read.expected(taught) == "80.51 / 77.50, 6.15M weights, given a teacher"
    older = {**run, "settings": {"teacher": "teacher"}}
    assert read.expected(older) == read.expected(taught)
    taught["settings"]["teacher"].append("dense")
    assert read.expected(taught) == "80.51 / 77.50, 6.15M weights, given 2 teachers"


def test_the_row_with_the_papers_copying_error_is_compared_on_valid(make):
    results = Results({"ptb-ablation-5": make(small=(90.0, 86.0, 5_000_000))})
    verdict = judge(ROWS["ptb-ablation-5", "small"], results)
    assert verdict.good == ("valid 0.83 better than the paper",) and not verdict.bad


def test_more_weights_than_the_paper_has_are_said(make):
    row = ROWS["ptb-ablation-3", "small"]
    heavy = Results({"ptb-ablation-3": make(small=(84.0, 81.0, 9_000_000))})
    assert judge(row, heavy).bad == ("9.00M weights, the paper has 7.41M",)
    light = Results({"ptb-ablation-3": make(small=(84.0, 81.0, 7_410_000))})
    assert not judge(row, light).bad


def test_the_pruned_model_is_compared_with_our_own_dense_one(make):
    runs = {
        "ptb-paper": make(small=(80.5, 77.5, 6_150_000), control=(82.0, 78.6, 6_150_000)),
        "ptb-dense-ntasgd": make(dense=(77.0, 75.5, 66_000_000)),
    }
    page = results_page(Results(runs))
    assert (
        "- neuron selection: test 2.00 worse than our dense model under the same schedule." in page
    )
    assert "reached what was asked" in line_of(page, "neuron selection")


def test_mult_adds_stand_beside_those_of_the_paper(make):
    run = make(small=(80.5, 77.5, 6_150_000))
    run["models"]["small"]["macs"] = 3_654_132
    page = results_page(Results({"ptb-paper": run}))
    assert "| neuron selection | 3.65M | 14.0x | 3.65M | 14.0x |" in page
    assert "more than the paper" not in page
    run["models"]["small"]["macs"] = 4_020_000
    page = results_page(Results({"ptb-paper": run}))
    assert "- neuron selection: 4.02M mult-adds a token, 10 % more than the paper." in page


def test_pictures_that_are_there_are_shown(make):
    runs = {"ptb-paper": make(small=(80.5, 77.5, 6_150_000))}
    assert "](results/ptb/ptb-paper.svg)" in results_page(Results(runs, ("ptb-paper",)))
    assert ".svg" not in results_page(Results(runs))


def test_notes_written_by_hand_are_part_of_the_page(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/NOTES.md").write_text("A lower rate did not help.\n")
    page = pages(tmp_path)[tmp_path / "RESULTS.md"]
    assert page.endswith("## What was tried\n\nA lower rate did not help.\n")
