"""The figure of recurrent highway networks: points are where their numbers are, ours below ISS."""

from xml.etree import ElementTree

from tools.results.curve import COLOURS, width_curve
from tools.results.page import pages, results_page
from tools.results.read import Results
from tools.results.widths import PAPERS, ROWS, against_iss, lines

SVG = "{http://www.w3.org/2000/svg}"


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
        "ours, taught, 40 epochs": [(725, 64.5)],
        "our ISS, taught, 40 epochs": [(400, 68.6), (520, 65.6)],
        "from scratch, taught, 40 epochs": [(725, 64.9)],
        "ours, taught, 160 epochs": [(389, 65.0)],
        "from scratch, taught, 160 epochs": [(389, 66.0)],
        "ours, plain, 100 epochs": [(388, 67.0)],
        "from scratch, plain, 100 epochs": [(388, 68.0)],
        "ours, dense, 120 epochs": [(830, 65.1)],
        "ISS, its paper": [(328, 71.2), (403, 67.7), (517, 65.4), (726, 65.0)],
        "neuron selection, the paper": [(389, 65.1)],
        "dense, the paper": [(830, 65.4)],
    }


def test_every_line_has_a_colour_and_says_the_epochs_of_its_runs(pytestconfig):
    assert {row.line for row in ROWS} | PAPERS == set(COLOURS)
    published = Results.read(pytestconfig.rootpath / "results").runs
    for row in ROWS:
        epochs = published[row.name]["settings"]["epochs"]
        assert row.line.endswith(f", {epochs} epochs"), row.name
    dense = published["ptb-rhn-dense"]["settings"]["epochs"]
    assert f"without the {dense} epochs" in results_page(Results({}))


def test_wide_is_right_and_worse_is_up(make):
    root = ElementTree.fromstring(width_curve(Results(runs(make))))
    places = {
        title.text: (float(circle.get("cx")), float(circle.get("cy")))
        for circle in root.findall(f"{SVG}circle")
        for title in circle.findall(f"{SVG}title")
    }
    assert len(places) == 15
    narrow, wide = (
        places["our ISS, taught, 40 epochs: 68.60 at 400"],
        places["our ISS, taught, 40 epochs: 65.60 at 520"],
    )
    assert narrow[0] < wide[0] and narrow[1] < wide[1]  # y grows downwards
    assert (
        places["ours, taught, 40 epochs: 64.50 at 725"][1]
        > places["from scratch, taught, 40 epochs: 64.90 at 725"][1]
    )
    width, height = (float(root.get(side)) for side in ("width", "height"))
    assert all(0 < x < width and 0 < y < height for x, y in places.values())


def test_what_is_far_worse_stands_at_the_edge_with_its_perplexity(make):
    far = runs(make) | {"ptb-rhn-iss-strong": result(make, 400, small=(95, 91.3, 11e6))}
    root = ElementTree.fromstring(width_curve(Results(far)))
    circles = {c.findtext(f"{SVG}title"): c for c in root.findall(f"{SVG}circle")}
    iss, paper = (
        circles[n]
        for n in ("our ISS, taught, 40 epochs: 91.30 at 400", "ISS, its paper: 71.20 at 328")
    )
    assert iss.get("fill") == "#fff" and float(iss.get("cy")) < float(paper.get("cy"))
    assert "91.3 ↑" in [label.text for label in root.iter(f"{SVG}text")]


def test_there_is_no_figure_before_there_are_runs(make, tmp_path):
    assert width_curve(Results({})) == ""
    assert "rhn-curve.svg" not in results_page(Results({}))
    assert "rhn-curve.svg" in results_page(Results(runs(make)))
    (tmp_path / "results").mkdir()
    assert [path.name for path in pages(tmp_path)] == ["RESULTS.md"]


def with_points(make, ours, iss):
    names = [f"ptb-rhn-curve-{k}" for k in (1, 2, 3, 4)]
    found = {n: result(make, w, small=(70, p, 9e6)) for n, (w, p) in zip(names, ours, strict=False)}
    names = ("ptb-rhn-iss", "ptb-rhn-iss-weak", "ptb-rhn-iss-strong")
    found |= {n: result(make, w, small=(70, p, 9e6)) for n, (w, p) in zip(names, iss, strict=False)}
    return Results(found)


def test_widths_at_which_iss_is_better_stand_where_ours_is_worse(make):
    ours = [(400, 68.0), (600, 66.0)]
    fine = with_points(make, ours, [(500, 67.1), (700, 66.1), (300, 69.1)])
    assert against_iss(fine) == []
    said = "From a width of 400 to one of 600, which both reach, ours is below our own ISS, by 0.1"
    assert said in results_page(fine)
    beside = with_points(make, ours, [(300, 68.0), (500, 67.5)])  # none of its points is worse
    assert against_iss(beside) == ["- RHN, a width of 400: test 0.25 worse than ISS."]
    assert "which both reach" not in results_page(beside)
    worse = with_points(make, ours, [(500, 66.75), (450, 68.0)])
    assert against_iss(worse) == ["- RHN, a width of 500: test 0.25 worse than ISS."]
    assert against_iss(worse)[0] in results_page(worse).split("## Where ours is worse")[1]
    assert against_iss(with_points(make, [(400, 68.0)], [(400, 67.0)])) == [
        "- RHN, a width of 400: test 1.00 worse than ISS."
    ]


def test_of_several_points_of_one_width_the_best_counts(make):
    both = with_points(make, [(400, 68.0), (830, 66.0)], [(400, 69.0), (830, 72.0), (830, 71.0)])
    assert against_iss(both) == []
    assert lines(both)["our ISS, taught, 40 epochs"] == [(400, 69.0), (830, 71.0)]


def test_a_comparison_that_is_missing_is_said(make):
    missing = ["- RHN, neuron selection beside ISS at the same widths: not run yet."]
    assert against_iss(Results(runs(make))) == missing  # ISS is beside the only point of ours
    assert against_iss(with_points(make, [], [(500, 66.0)])) == missing
    assert against_iss(Results({})) == []
