"""The figure of recurrent highway networks: points are where their numbers are."""

from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from tools.results.curve import COLOURS, figure, lines, svg
from tools.results.rows import HIGHWAY, TAUGHT_ISS, WIDTHS
from tools.results.runs import Results


def result(make, width, **models):
    made = make(**models)
    for model in made["models"].values():
        model["neurons"] = {"embedding+rnn.0.l0": width}
    return made


def runs(make):
    return {
        "ptb-rhn-paper": result(make, 389, small=(67, 65.0, 7e6)),
        "ptb-rhn-paper-control": result(make, 389, control=(68, 66.0, 7e6)),
        "ptb-rhn-curve-1": result(make, 725, small=(66, 64.5, 19e6), control=(66, 64.9, 19e6)),
        "ptb-rhn-dense": result(make, 830, dense=(67, 65.1, 23e6)),
        "ptb-rhn-iss": result(make, 520, small=(67, 65.6, 11e6)),
        "ptb-rhn-iss-strong": result(make, 400, small=(70, 68.6, 11e6)),
        "ptb-rhn-plain": result(make, 388, small=(69, 67.0, 11e6)),
        "ptb-rhn-scratch": result(make, 388, control=(70, 68.0, 11e6)),
    }


def test_points_are_those_of_the_runs_and_of_the_papers(make):
    assert lines(Results(runs(make))) == {
        "selection, with teachers, 40 epochs": [(725, 64.5)],
        "ISS, with teachers, 40 epochs": [(400, 68.6), (520, 65.6)],
        "scratch, with teachers, 40 epochs": [(725, 64.9)],
        "selection, with teachers, 160 epochs": [(389, 65.0)],
        "scratch, with teachers, 160 epochs": [(389, 66.0)],
        "selection, 100 epochs": [(388, 67.0)],
        "scratch, 100 epochs": [(388, 68.0)],
        "dense, 120 epochs": [(830, 65.1)],
        "paper: ISS": [(328, 71.2), (403, 67.7), (517, 65.4), (726, 65.0)],
        "paper: neuron selection": [(389, 65.1)],
        "paper: dense": [(830, 65.4)],
    }


def test_every_line_has_a_colour_and_the_epochs_and_teachers_of_its_runs(pytestconfig):
    rows = (*HIGHWAY, *WIDTHS)
    assert {row.line for row in rows} | {row.paper_line for row in rows} - {""} == set(COLOURS)
    published = Results.read(pytestconfig.rootpath / "results").runs
    for row in rows:
        settings = published[row.run]["settings"]
        assert row.line.endswith(f", {settings['epochs']} epochs"), row.run
        assert ("teachers" in row.line) == bool(settings["distill"]), row.run


def test_the_points_are_drawn_and_those_far_off_stand_at_the_edge(make):
    far = runs(make) | {"ptb-rhn-iss-strong": result(make, 400, small=(95, 91.3, 11e6))}
    axes = figure(Results(far)).axes[0]
    drawn = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    for name, points in lines(Results(far)).items():
        assert drawn[name] == [list(point) for point in points]
    top = axes.get_ylim()[1]
    assert 71.2 < top < 91.3
    assert [400.0, top] in [xy for line in axes.lines for xy in line.get_xydata().tolist()]
    assert "91.3 ↑" in [text.get_text() for text in axes.texts]


def test_the_file_is_the_same_each_time(make):
    first = svg(Results(runs(make)))
    assert ElementTree.fromstring(first) is not None and svg(Results(runs(make))) == first


def test_of_several_points_of_one_width_the_best_counts(make):
    names = ("ptb-rhn-iss", "ptb-rhn-iss-weak", "ptb-rhn-iss-strong")
    points = ((400, 69.0), (830, 72.0), (830, 71.0))
    found = {
        name: result(make, width, small=(70, test, 9e6))
        for name, (width, test) in zip(names, points, strict=True)
    }
    assert lines(Results(found))[TAUGHT_ISS] == [(400, 69.0), (830, 71.0)]
