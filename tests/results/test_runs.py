"""Runs put together over seeds, and how each model reached its size."""

import doctest
import math

import pytest

from tools.results import paths, pattern, runs
from tools.results.runs import Results, how, place, spread


def test_seeds_are_put_together(make):
    tests = (77.0, 78.0, 79.0)
    names = ("ptb-paper", "ptb-paper-seed1", "ptb-paper-seed2")
    found = {
        name: make(seed=i, small=(80.0 + i, test, 6_100_000 + i))
        for i, (name, test) in enumerate(zip(names, tests, strict=True))
    }
    found["ptb-paper-scratch"] = make(dense=(90.0, 90.0, 6_100_000))
    results = Results(found)
    figures = results.figures("ptb-paper")
    assert (figures.second, figures.weights) == (tests, 6_100_002)
    assert str(figures) == "81.00 ± 1.00, 78.00 ± 1.00 (3 seeds)"
    assert results.figures("ptb-paper", "control") is None


@pytest.mark.parametrize(
    ("settings", "kind", "expected"),
    [
        ({"target_params": 6e6, "l0": None, "distill": 0.0}, "small", "target"),
        ({"target_params": 6e6, "distill": 0.9, "written": 9}, "small", "target + teacher + texts"),
        ({"target_params": 6e6, "start_from": "teacher"}, "small", "target + start"),
        (
            {"target_params": 6e6, "start_from": "teacher", "distill": 0.9},
            "control",
            "scratch + teacher",
        ),
        ({"target_params": None, "target_macs": 3e6}, "small", "target"),
        ({"l0": {"rnn.weight_ih_l0": 8.6e-8}}, "small", "L0"),
        ({"lasso": 9e-5, "lasso_zero": 0.01, "target_params": None}, "small", "lasso"),
        ({"target_params": 0.4, "lasso_zero": 0.01}, "dense", "scratch"),
        ({"target_params": 0.4, "score": "gates", "gate": "arm"}, "small", "target + ARM"),
        ({"target_params": 0.4, "score": "random"}, "small", "random"),
        ({"target_params": 0.4, "score": "magnitude"}, "control", "scratch"),
    ],
)
def test_how_a_model_reached_its_size_is_in_its_settings(settings, kind, expected):
    assert how(settings, kind) == expected


def test_every_published_pruned_model_has_one_way_to_its_size(pytestconfig):
    for name, run in Results.read(pytestconfig.rootpath / "results").runs.items():
        if "small" in run["models"]:
            settings = run["settings"]
            keys = ("l0", "lasso", "target_params")
            assert sum(bool(settings.get(key)) for key in keys) == 1, name


def test_files_of_this_repository_are_in_the_folder_of_their_experiment(pytestconfig):
    folder = pytestconfig.rootpath / "results"
    for name in Results.read(folder).runs:
        assert (folder / f"{place(name)}.json").exists()


@pytest.mark.parametrize("module", [paths, pattern, runs])
def test_examples_in_docstrings(module):
    found = doctest.testmod(module)
    assert found.attempted and not found.failed


def test_what_is_unknown_is_a_question_mark():
    assert spread((math.nan,)) == "?"
