"""Minutes of runs are those of their files."""

import json

import pytest

from tools.results import minutes
from tools.results.runs import Results


def found(pruned, dense, highway=None):
    runs = {"ptb-dense-ntasgd": (100, 5, dense), "ptb-paper": (100, 24, pruned)}
    runs |= {} if highway is None else {"ptb-rhn-plain": (100, 28, highway)}
    return {
        "runs": {
            name: dict(zip(("epochs", "trained", "minutes"), run, strict=True))
            for name, run in runs.items()
        }
    }


def test_runs_alone_on_the_gpu():
    assert "| `ptb-paper` | 100 | 24 | 3.4 |" in minutes.alone(found(3.4, 7.2))
    assert minutes.share(found(3.6, 7.2)) == pytest.approx(0.5)


def test_the_highway_network_is_read_by_the_name_that_it_had(tmp_path):
    assert minutes.read(tmp_path) is None
    (tmp_path / "speed").mkdir()
    (tmp_path / minutes.FILE).write_text(json.dumps(found(1.0, 3.0)))
    assert minutes.read(tmp_path) == found(1.0, 3.0)
    highway = {"runs": {minutes.TIMED_AS: found(1.0, 3.0, 2.0)["runs"]["ptb-rhn-plain"]}}
    (tmp_path / minutes.HIGHWAY_FILE).write_text(json.dumps(highway))
    assert minutes.read(tmp_path) == found(1.0, 3.0, 2.0)


def test_time_and_memory_of_every_model(make):
    table = minutes.table(Results({"ptb-paper": make(small=(80.5, 77.5, 6_150_000))}))
    assert "| [ptb-paper](ptb/ptb-paper.json) | small | 100 | 10.0 | 2.00 | a GPU |" in table
