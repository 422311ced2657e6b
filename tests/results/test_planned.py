"""The list of runs that are still needed: commands that work, and what is done of it."""

import shlex

import pytest

from thinrnn.lab import recipes
from thinrnn.lab.recipes.settings import changed
from tools.results.planned import read, table
from tools.results.runs import Results


@pytest.fixture(scope="module")
def runs(pytestconfig):
    return read(pytestconfig.rootpath / "results")


def test_every_command_names_a_preset_and_settings_that_fit_together(runs):
    kinds = {"small": "gated", "control": "control", "dense": "dense"}
    for run in runs:
        program, command, preset, *rest = shlex.split(run["train"])
        assert (program, command) == ("thinrnn", "train")
        options = dict.fromkeys(rest[::2])
        assert set(options) <= {"--data", "--set"}, run["name"]
        sets = [v for o, v in zip(rest[::2], rest[1::2], strict=True) if o == "--set"]
        settings = changed(recipes.preset(preset).settings(), sets)
        assert kinds[run["model"]] in settings.phases, run["name"]


def test_a_name_stands_for_one_command_and_model(runs):
    names = [(run["name"], run["model"]) for run in runs]
    assert len(set(names)) == len(names)


def test_the_table_counts_seeds_and_shows_what_they_reached(make):
    run = {"part": "p", "name": "ptb-x", "what": "w", "model": "small", "seeds": 3}
    found = make(small=(80.5, 77.5, 6_150_000))
    found["settings"]["score"] = "random"
    *_, line = table([run], Results({"ptb-x": found})).splitlines()
    assert line == "| p | w | `ptb-x` | 1 of 3 | random | 80.50, 77.50 | 6.15M |"
    assert "| to run | - |" in table([run], Results({}))
    older = {**run, "needs": {"epochs": 300}}
    assert "| to run | - |" in table([older], Results({"ptb-x": found}))
