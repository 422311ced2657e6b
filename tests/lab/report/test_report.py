"""The report of runs of all kinds: what is in the file, and that it is one sound file."""

import json
import math
import os
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from thinrnn.errors import RunError
from thinrnn.lab.report import write_report

MakeRun = Callable[..., Path]
VOID = {"meta", "link", "br"}
NASTY = "<b>&\"'</script><script>alert(1)</script>"


class Page(HTMLParser):
    """Reads a report, and fails on a tag that is not closed in its order."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.charts: dict[str, list[dict[str, Any]]] = {}
        self.text = ""
        self._chart = ""
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        assert self.open == []
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        self._chart = dict(attrs).get("data-chart") or self._chart

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            if data.startswith("{"):
                self.charts.setdefault(self._chart, []).append(json.loads(data))
        elif self.open and self.open[-1] != "style":
            self.text += data.replace("\u00a0", " ") + " "

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def many_kinds(make_run: MakeRun) -> list[Path]:
    small = {"weights": 190_000, "test_perplexity": 84.9, "milliseconds": 1.9}
    return [make_run("a"), make_run("b", summaries={"small": small})]


def test_a_finished_run_shows_every_part_in_order(many_kinds: list[Path]) -> None:
    page = Page(write_report(many_kinds))
    sections = [a["id"] for a in page.attributes("section")]
    assert sections == [
        "headline", "gates", "curves", "matrices", "sizes", "tradeoff", "setup",
    ]  # fmt: skip
    assert set(page.charts) == {
        "kept", "heat", "perplexity", "penalty", "params", "matrix", "bars",
        "tradeoff-weights", "tradeoff-time",
    }  # fmt: skip
    assert len(page.charts["heat"]) == 3 and len(page.charts["matrix"]) == 6
    for expected in (
        "1.92 M → 428 k",
        "22 % of the dense model",
        "81.93",
        "dense 81.11, control 88.75",
        "3.43×",
        "2.1 × 10⁻⁷",
        "1,724,816",
        "thinrnn train lm --train corpus.txt --preset demo --out runs/a",
        "target.params",
        "2.13.0",
    ):
        assert expected in page.text
    assert "still running" not in page.text
    assert 'http-equiv="refresh"' not in page.source


def test_the_charts_hold_the_measured_values(make_run: MakeRun) -> None:
    folder = make_run(epochs=4)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    gated = [x for x in lines if x["event"] == "epoch" and x["phase"] == "gated"]
    page = Page(write_report([folder]))
    for kept in page.charts["kept"]:  # one for wide screens, one for narrow ones
        assert kept["title"] == ["epoch 0", "epoch 1", "epoch 2", "epoch 3", "epoch 4"]
        assert {s["name"]: s["text"] for s in kept["series"]} == {
            group: [str(size), *(str(x["kept"][group]) for x in gated)]
            for group, size in gated[0]["sizes"].items()
        }
    for perplexity in page.charts["perplexity"]:
        assert [s["name"] for s in perplexity["series"]] == ["dense", "gated", "control"]
        assert perplexity["series"][1]["text"][3] == f"{gated[3]['valid_perplexity']:.2f}"
    assert f"{gated[3]['valid_perplexity']:.2f}" in page.text  # the table under the chart


def test_every_chart_has_a_caption_a_description_and_a_table(many_kinds: list[Path]) -> None:
    page = Page(write_report(many_kinds))
    figures = page.source.split("<figure")[1:]
    assert len(figures) == 9
    for figure in figures:
        figure = figure.split("</figure>")[0]
        assert "<figcaption>" in figure and "<details>" in figure and "<td>" in figure
        assert figure.count("<svg") == len(re.findall(r'<svg[^>]* role="img"', figure)) > 0
    assert all(a["aria-label"] for a in page.attributes("svg"))


def test_the_file_asks_for_nothing(many_kinds: list[Path]) -> None:
    page = Page(write_report(many_kinds))
    assert "http://" not in page.source and "https://" not in page.source
    for tag, attributes in page.tags:
        assert tag not in ("iframe", "object", "embed", "base")
        for name in ("src", "href"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert set(re.findall(r"url\((.)", page.source)) == {"#"}
    assert "default-src 'none'" in page.source
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))


def test_a_normal_report_is_small(make_run: MakeRun) -> None:
    assert write_report([make_run(epochs=60)]).stat().st_size < 500_000


def test_a_run_in_progress_shows_what_it_has(make_run: MakeRun) -> None:
    page = Page(write_report([make_run(finished=False, epochs=7)]))
    assert "still running: epoch 7" in page.text
    assert '<meta http-equiv="refresh" content="10">' in page.source
    assert {"kept", "heat", "perplexity", "penalty", "params", "bars"} == set(page.charts)


def test_a_page_is_watched_until_every_phase_has_its_model(make_run: MakeRun) -> None:
    settings = {"phases": ["dense", "gated", "control"]}
    folder = make_run(config={"settings": settings})
    assert "refresh" not in Page(write_report([folder])).source
    (folder / "control.json").unlink()
    page = Page(write_report([folder]))
    assert '<meta http-equiv="refresh" content="10">' in page.source
    assert "still running: epoch 20 (control phase" in page.text
    assert "Speed-up" in page.text  # what dense and small model have is there already


def test_a_run_that_was_stopped_says_how_to_go_on(make_run: MakeRun) -> None:
    folder = make_run(finished=False, epochs=7)
    (folder / ".lock").touch()  # and no process holds it
    page = Page(write_report([folder]))
    assert "stopped before its end: epoch 7 (gated phase" in page.text
    assert f"go on with thinrnn train --resume {folder}" in page.text
    assert "refresh" not in page.source


def test_coupled_groups_are_one_row_in_all_models(make_run: MakeRun) -> None:
    apart = {"embedding": 40, "rnn.l0": 30, "rnn.l1": 40}
    together = {"embedding+rnn.l1": 12, "rnn.l0": 8}
    again = {"embedding": 12, "rnn.l0": 8, "rnn.l1": 12}
    neurons = {"dense": apart, "small": together, "control": again}
    folder = make_run(summaries={kind: {"neurons": n} for kind, n in neurons.items()})
    page = Page(write_report([folder]))
    assert "neurons, embedding+rnn.l1 40 12 12 30 %" in page.text
    assert "neurons, rnn.l0 30 8 8" in page.text
    assert page.text.count("neurons, ") == 2


def test_a_run_that_has_just_begun_has_a_report(make_run: MakeRun) -> None:
    folder = make_run(finished=False)
    (folder / "metrics.jsonl").write_text("")
    (folder / "dense.json").unlink()
    page = Page(write_report([folder]))
    assert "still running: no epoch finished yet" in page.text
    assert page.charts == {}
    assert [a["id"] for a in page.attributes("section")] == ["setup"]


def test_one_epoch_is_enough(make_run: MakeRun) -> None:
    page = Page(write_report([make_run(epochs=1)]))
    assert page.charts["perplexity"][0]["title"] == ["epoch 1"]
    assert page.source.count('class="dot gated"') > 0


def test_ten_thousand_epochs_stay_readable(make_run: MakeRun) -> None:
    folder = make_run(epochs=10_000, groups={"lstm.l0": 8, "lstm.l1": 8})
    path = write_report([folder])
    page = Page(path)
    for name in ("kept", "perplexity", "penalty", "params"):
        assert all(len(chart["x"]) <= 400 for chart in page.charts[name])
        assert page.charts[name][0]["x"]
    assert page.charts["kept"][0]["title"][-1] == "epoch 10,000"
    assert "Shown are 400 of 10,000 epochs" in page.text
    assert path.stat().st_size < 2_000_000


def test_sixty_groups_stay_readable(make_run: MakeRun) -> None:
    groups = {f"encoder.layer{i}.lstm": 16 for i in range(60)}
    path = write_report([make_run(epochs=30, groups=groups)])
    page = Page(path)
    assert len(page.charts["heat"]) == len(page.charts["kept"][0]["series"]) == 60
    assert path.stat().st_size < 2_000_000


def test_values_that_are_not_finite_leave_gaps(make_run: MakeRun) -> None:
    folder = make_run(epochs=6)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for x in lines:
        if x["event"] == "epoch" and x["epoch"] == 3:
            x |= {"valid_perplexity": math.inf, "penalty": math.nan, "params": None}
            x["values"] = {group: [math.nan] * len(v) for group, v in x["values"].items()}
        if x["event"] == "step":
            x["penalty"] = math.nan
    (folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    (folder / "dense.json").write_text('{"valid_perplexity": NaN, "weights": Infinity}')
    page = Page(write_report([folder]))
    for chart in (page.charts["perplexity"][0], page.charts["penalty"][0]):
        assert chart["series"][0]["y"].count(None) == 1
    assert "values were not finite" in page.text
    assert not re.search(r'="[^"]*\b(nan|inf)\b', page.source)


def test_a_penalty_that_is_always_zero_is_not_drawn(make_run: MakeRun) -> None:
    folder = make_run(epochs=3)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [x | {"penalty": 0.0} for x in lines]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    charts = Page(write_report([folder])).charts
    assert "penalty" not in charts and "params" in charts


def test_all_values_missing_draws_no_empty_chart(make_run: MakeRun) -> None:
    folder = make_run(epochs=2)
    line = {"event": "epoch", "phase": "gated", "epoch": 1, "valid_perplexity": None}
    (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    page = Page(write_report([folder]))
    assert not {"kept", "heat", "perplexity", "penalty", "params"} & set(page.charts)


def test_names_are_shown_as_they_are_and_never_become_markup(make_run: MakeRun) -> None:
    folder = make_run(
        'a<i>&"b',
        epochs=3,
        groups={NASTY: 10, "lstm.l0": 10},
        config={"settings": {NASTY: NASTY}, "command": NASTY, "recipe": NASTY, "preset": NASTY},
    )
    page = Page(write_report([folder, make_run("other", epochs=2)]))
    assert NASTY in page.text and 'a<i>&"b' in page.text
    assert page.charts["kept"][0]["series"][0]["name"] == NASTY
    assert not page.attributes("i")[0].get("onclick")
    scripts = page.source.count("<script")
    assert scripts == sum(len(charts) for charts in page.charts.values()) + 1


def test_runs_of_the_same_name_can_be_told_apart(make_run: MakeRun) -> None:
    first, second = make_run("x/run", epochs=2), make_run("y/run", epochs=2)
    page = Page(write_report([first, second, second]))
    assert all(name in page.text for name in ("x/run", "y/run", "y/run (2)"))


def test_runs_that_share_a_model_share_its_point(many_kinds: list[Path]) -> None:
    page = Page(write_report(many_kinds))
    titles = [p["title"] for p in page.charts["tradeoff-weights"][0]["points"]]
    assert sorted(titles) == ["a small", "b small", "control, all runs", "dense, all runs"]


def test_validation_is_compared_where_a_test_value_is_missing(make_run: MakeRun) -> None:
    runs = [make_run("a", summaries={"control": {"test_perplexity": None}}), make_run("b")]
    page = Page(write_report(runs))
    points = page.charts["tradeoff-weights"][0]["points"]
    assert {point["rows"][0][0] for point in points} == {"validation perplexity"}
    assert ["validation perplexity", "85.13"] in [point["rows"][0] for point in points]


def test_the_trade_off_needs_two_runs(make_run: MakeRun) -> None:
    page = Page(write_report([make_run()]))
    assert "tradeoff" not in [a["id"] for a in page.attributes("section")]


def test_further_parts_of_the_configuration_are_shown(make_run: MakeRun) -> None:
    page = Page(write_report([make_run(config={"text": {"train_tokens": 50313}})]))
    assert "train_tokens" in page.text and "50313" in page.text


def test_damaged_lines_are_mentioned(make_run: MakeRun) -> None:
    folder = make_run(epochs=2)
    metrics = folder / "metrics.jsonl"
    metrics.write_text("{torn\n" + metrics.read_text())
    assert "could not be read and are left out: 1." in Page(write_report([folder])).text


def test_the_report_goes_where_it_is_told(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run()
    assert write_report([folder]) == folder / "report.html"
    assert write_report([folder], tmp_path / "mine.html") == tmp_path / "mine.html"
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["mine.html"]


def test_bad_input_is_refused_and_the_old_report_stays(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run()
    path = write_report([folder])
    before = path.read_bytes()
    (folder / "dense.json").write_text("{")
    with pytest.raises(RunError, match=r"dense\.json is damaged"):
        write_report([folder])
    assert path.read_bytes() == before
    with pytest.raises(RunError, match="no run folder was given"):
        write_report([])
    with pytest.raises(RunError, match="cannot write"):
        write_report([make_run("good")], path / "report.html")  # inside a file


def test_a_failed_write_leaves_the_old_report(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run()
    path = write_report([folder])
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        write_report([folder])
    assert path.read_bytes() == before
    assert not list(folder.glob(".report*"))


def test_a_reader_is_shown_by_em_and_f1_of_which_more_is_better(make_run: MakeRun) -> None:
    scores = {"small": {"em": 66.5, "f1": 76.25}, "control": {"em": 65.0, "f1": 75.0}}
    runs = [
        make_run(name, epochs=3, summaries={**scores, "dense": {"em": 68.0, "f1": 77.0}})
        for name in ("a", "b")
    ]
    for folder in runs:
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        lines = [x | {"em": 5.0 + x["epoch"], "f1": 20.0 + x["epoch"]} for x in lines]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    page = Page(write_report(runs[:1]))
    assert {"em", "f1"} <= page.charts.keys() and "perplexity" not in page.charts
    assert "Best: dense 23.00, gated 23.00, control 23.00." in page.text
    assert "76.25" in page.text and "66.50" in page.text
    assert "perplexity" not in page.text.lower()
    both = Page(write_report(runs))
    assert "Up and left is better" in both.text
    points = both.charts["tradeoff-weights"][0]["points"]
    assert {point["rows"][0][0] for point in points} == {"F1"}
