"""Minutes of whole runs: every figure on the page is from their file."""

import json

import pytest

from tools.results import minutes
from tools.results.page import results_page
from tools.results.read import Results


def found(pruned, dense, highway=None):
    runs = {"ptb-dense-ntasgd": (100, 5, dense), "ptb-paper": (100, 24, pruned)}
    runs |= {} if highway is None else {"ptb-rhn-plain": (100, 28, highway)}
    return {
        "runs": {
            name: dict(zip(("epochs", "trained", "minutes"), run, strict=True))
            for name, run in runs.items()
        },
        "environment": {"gpu": "some GPU"},
    }


def test_what_is_reached_is_said_so():
    page = results_page(Results({}), runs=found(3.4, 7.2))
    assert "| `ptb-paper` | 100 | 24 | 3.4 |" in page
    assert "On one some GPU" in page and "takes 0.47 times as long" in page
    assert "half the time were asked, which is reached." in page
    assert "a whole `ptb-paper`" not in page


@pytest.mark.parametrize(
    ("pruned", "dense", "line"),
    [
        (4.0, 7.2, "- a whole `ptb-paper`: 0.56 of the dense run's time, asked: half."),
        (16.0, 40.0, "- a whole `ptb-paper`: 16.0 minutes, asked: at most 15."),
    ],
)
def test_what_is_missed_stands_where_ours_is_worse(pruned, dense, line):
    page = results_page(Results({}), runs=found(pruned, dense))
    assert line in page.split("## Where ours is worse")[1]
    assert "which is **missed**" in page


def test_epochs_of_the_highway_network_are_counted_in_proportion():
    page = results_page(Results({}), runs=found(3.4, 7.2, 2.5))
    assert "300 epochs of `ptb-rhn-plain` in batches of 64, in proportion, take 7.5 minutes" in page
    assert "at most 20 were asked, which is reached" in page
    slow = results_page(Results({}), runs=found(3.4, 7.2, 8.0))
    assert "- 300 epochs of `ptb-rhn-plain`: 24.0 minutes, asked: at most 20." in slow


def test_without_a_file_nothing_is_said(tmp_path):
    assert minutes.read(tmp_path) is None
    assert "alone on the GPU" not in results_page(Results({}))
    (tmp_path / "speed").mkdir()
    (tmp_path / minutes.FILE).write_text(json.dumps(found(1.0, 3.0)))
    assert minutes.read(tmp_path) == found(1.0, 3.0)
    highway = {"runs": {minutes.TIMED_AS: found(1.0, 3.0, 2.0)["runs"]["ptb-rhn-plain"]}}
    (tmp_path / minutes.HIGHWAY_FILE).write_text(json.dumps(highway))
    assert minutes.read(tmp_path) == found(1.0, 3.0, 2.0)
