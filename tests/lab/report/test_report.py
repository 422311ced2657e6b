"""The report of runs of all kinds: what is in the file, and that it is one sound file."""

import json
import math
import os
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from thinrnn.errors import MissingExtraError, RunError
from thinrnn.lab.report import write_report
from thinrnn.lab.report.write import breakable

MakeRun = Callable[..., Path]
VOID = {"meta", "link", "br", "img", "wbr", "path", "use"}
NASTY = "<b>&\"'</script><script>alert(1)</script>{{ 7 * 7 }}"


class Page(HTMLParser):
    """Reads a report, and fails on a tag that is not closed in its order."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}  # by caption, the head first
        self.text = ""
        self.source = path.read_text(encoding="utf-8")
        self._caption = ""
        self.feed(self.source)
        assert self.open == []
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "div" and dict(attrs).get("role") == "region":
            self._caption = dict(attrs)["aria-label"] or ""
            self.tables.setdefault(self._caption, [])
        if tag == "tr":
            self.tables[self._caption].append([])
        if tag in ("td", "th"):
            self.tables[self._caption][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] in ("style", "title"):
            return
        data = data.replace("\u00a0", " ")
        self.text += data + ("" if self.open[-1] in ("h1", "th", "b") else " ")
        if self.open[-1] in ("td", "th"):
            self.tables[self._caption][-1][-1] += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def sections(self) -> list[str | None]:
        return [a["id"] for a in self.attributes("section")]

    @property
    def charts(self) -> list[str | None]:
        return [c for a in self.attributes("figure") if (c := a.get("data-chart")) != "bars" and c]

    def cards(self) -> dict[str, tuple[str, str]]:
        """The big numbers and their notes by title."""
        pattern = r'<dt>([^<]*)</dt><dd class="number">([^<]*)</dd><dd class="note">([^<]*)</dd>'
        found = re.findall(pattern, self.source.replace("\u00a0", " "))
        return {title: (number, note) for title, number, note in found}

    def verdicts(self) -> list[str]:
        return re.findall(r'<li class="(ok|failed)">', self.source)

    def row(self, name: str, caption: str = "Dense, small and control model") -> list[str]:
        return next(cells for head, *cells in self.tables[caption] if head == name)


def change_epochs(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Rewrites the lines of metrics.jsonl."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    text = "".join(json.dumps(change(line)) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)


@pytest.fixture
def two_runs(make_run: MakeRun) -> list[Path]:
    small = {"weights": 190_000, "test_perplexity": 84.9, "milliseconds": 1.9}
    settings = {"hidden_size": 200, "layers": 2, "lr": 0.004, "target": {"params": 0.1}}
    return [make_run("a"), make_run("b", summaries={"small": small}, config={"settings": settings})]


def test_a_finished_run_shows_every_part_in_order(make_run: MakeRun) -> None:
    page = Page(write_report([make_run("a")]))
    assert page.sections == ["result", "training", "gates", "matrices", "sizes", "configuration"]
    assert page.charts == ["valid-perplexity", "kept", "params", "penalty"]
    assert len(page.attributes("img")) == 3 + 6  # groups and matrices
    assert {title: number for title, (number, _) in page.cards().items()} == {
        "Weights": "1.92 M → 428 k",
        "Test perplexity": "81.93",
        "Speed-up, PyTorch": "3.43×",
        "Verified difference": "2.1 × 10⁻⁷",
    }
    assert "dense 81.11, control 88.75" in page.cards()["Test perplexity"][1]
    assert "12.4 ms → 3.61 ms" in page.cards()["Speed-up, PyTorch"][1]
    assert page.row("bytes") == ["7,702,400", "1,724,816", "1,724,816", "22 %"]
    assert page.row("lr", "Settings") == ["0.002"]
    assert page.row("target.params", "Settings") == ["0.25"]
    assert page.row("torch", "Versions and machine") == ["2.13.0"]
    assert "thinrnn train lm --train corpus.txt --preset demo --out runs/a" in page.text
    assert 'http-equiv="refresh"' not in page.source


def test_a_control_that_did_not_learn_is_not_compared_with(make_run: MakeRun) -> None:
    control = {"valid_perplexity": 700.0, "test_perplexity": 690.0}
    settings = {"preset": "lm", "text": {"unigram_perplexity": 680.0}}
    folders = [make_run("a", summaries={"control": control}, config=settings), make_run("b")]
    page = Page(write_report(folders[:1]))
    assert page.cards()["Test perplexity"] == ("81.93", "dense 81.11, control failed 690.00")
    assert page.verdicts() == ["failed"] and "control failed: perplexity 700.00" in page.text
    both = Page(write_report(folders))
    names = [cells[0] for cells in both.tables["All models"]]
    assert "a, control failed" in names and "b, control" in names


def test_noisy_times_are_not_compared(make_run: MakeRun) -> None:
    page = Page(write_report([make_run("a", summaries={"small": {"milliseconds_spread": 3.0}})]))
    assert page.cards()["Speed-up, PyTorch"][0] == "too noisy"
    assert page.row("speed-up, PyTorch")[:2] == ["1.00×", "too noisy"]


def test_a_model_that_was_not_timed_has_no_noisy_times(make_run: MakeRun) -> None:
    noisy = {"onnx_milliseconds": 9.0, "onnx_milliseconds_spread": 3.0}
    page = Page(write_report([make_run("a", summaries={"dense": noisy, "small": noisy})]))
    assert page.row("speed-up, ONNX Runtime")[1:3] == ["too noisy", "–"]


def test_matrices_that_keep_their_shape_are_left_out(make_run: MakeRun) -> None:
    folder = make_run()
    pattern = json.loads((folder / "pattern.json").read_text())
    for matrix in pattern["matrices"][1:]:
        matrix["kept_rows"] = matrix["kept_columns"] = None
    (folder / "pattern.json").write_text(json.dumps(pattern))
    assert len(Page(write_report([folder])).attributes("img")) == 3 + 1


def test_the_headline_speed_is_that_of_onnx_runtime_where_it_is_measured(
    make_run: MakeRun,
) -> None:
    page = Page(write_report([make_run(summaries={"dense": {"onnx_milliseconds": 5.8}})]))
    assert page.cards()["Speed-up, ONNX Runtime"][0] == "2.00×"
    assert "Speed-up, PyTorch" not in page.cards()
    assert page.row("speed-up, PyTorch")[:2] == ["1.00×", "3.43×"]
    assert page.row("speed-up, ONNX Runtime")[:2] == ["1.00×", "2.00×"]


def test_the_demo_shows_its_verdicts(make_run: MakeRun) -> None:
    page = Page(write_report([make_run("good")]))
    assert page.verdicts() == ["ok"] * 3
    large = {"small": {"weights": 900_000}}
    page = Page(write_report([make_run("large", summaries=large)]))
    assert page.verdicts() == ["ok", "ok", "failed"]
    half_way = Page(write_report([make_run("half", finished=False)]))
    assert half_way.verdicts() == []


def test_other_runs_show_the_verdict_on_their_target(make_run: MakeRun) -> None:
    config = {"preset": "lm", "settings": {"target_params": 0.25, "target_macs": 400_000}}
    page = Page(write_report([make_run(config=config)]))
    assert page.verdicts() == ["ok", "failed"]
    assert "431,204 parameters, at most 481,400" in page.text
    assert "418,000 mult-adds, at most 400,000" in page.text


def test_the_tables_hold_the_measured_values(make_run: MakeRun) -> None:
    folder = make_run(epochs=4)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    gated = [x for x in lines if x["event"] == "epoch" and x["phase"] == "gated"]
    page = Page(write_report([folder]))
    head, before, *rest = page.tables["Neurons kept by epoch"]
    assert head == ["epoch", *gated[0]["sizes"]]
    assert before == ["0", *(str(size) for size in gated[0]["sizes"].values())]
    assert rest == [[str(x["epoch"]), *map(str, x["kept"].values())] for x in gated]
    head, *rest = page.tables["Validation perplexity by epoch"]
    assert head == ["epoch", "dense", "gated", "control"]
    assert [row[2] for row in rest] == [f"{x['valid_perplexity']:.2f}" for x in gated]


def test_every_chart_has_a_caption_a_description_and_a_table(two_runs: list[Path]) -> None:
    for page in (Page(write_report(two_runs)), Page(write_report(two_runs[:1]))):
        figures = page.source.split("<figure data-chart=")[1:]
        for figure in figures:
            figure = figure.split("</figure>")[0]
            assert "<figcaption>" in figure and ("<td>" in figure or "<dd>" in figure)
        assert all(a["aria-label"] and a["role"] == "img" for a in page.attributes("svg"))
        assert all(a["alt"] for a in page.attributes("img"))


def test_the_file_asks_for_nothing_and_runs_nothing(two_runs: list[Path]) -> None:
    for page in (Page(write_report(two_runs)), Page(write_report(two_runs[:1]))):
        for tag, attributes in page.tags:
            assert tag not in ("script", "iframe", "object", "embed", "base", "form")
            assert not any(name.startswith("on") for name in attributes)
            for name in ("src", "href"):
                assert (attributes.get(name) or "data:").startswith("data:")
        assert set(re.findall(r"url\((.)", page.source)) == {"#"}
        policy = page.attributes("meta")[1]["content"]
        assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        ids = [a["id"] for _, a in page.tags if "id" in a]
        assert len(ids) == len(set(ids))


def test_a_report_is_small_and_the_same_each_time(make_run: MakeRun) -> None:
    folder = make_run(epochs=60)
    path = write_report([folder])
    before = path.read_bytes()
    assert len(before) < 300_000
    assert write_report([folder]).read_bytes() == before


def test_a_run_in_progress_shows_what_it_has(make_run: MakeRun) -> None:
    page = Page(write_report([make_run(finished=False, epochs=7)]))
    assert "still running: epoch 7" in page.text
    assert 'http-equiv="refresh"' in page.source
    assert page.sections == ["result", "training", "gates", "configuration"]
    assert page.cards()["Neurons kept"] == ("242", "40 % of 600")
    assert page.cards()["Parameters left"][1] == "target 480 k"


def test_a_page_is_watched_until_every_phase_has_its_model(make_run: MakeRun) -> None:
    folder = make_run(config={"settings": {"phases": ["dense", "gated", "control"]}})
    assert "refresh" not in Page(write_report([folder])).source
    (folder / "control.json").unlink()
    page = Page(write_report([folder]))
    assert 'http-equiv="refresh"' in page.source
    assert "epoch 20 (control" in page.text
    assert "Speed-up, PyTorch" in page.cards()  # dense and small model are there already


def test_a_stopped_run_names_the_command_to_resume(make_run: MakeRun) -> None:
    folder = make_run(finished=False, epochs=7)
    (folder / ".lock").touch()  # and no process holds it
    page = Page(write_report([folder]))
    assert "epoch 7 (gated" in page.text
    assert f"thinrnn train --resume {folder}" in page.text
    assert "refresh" not in page.source


def test_coupled_groups_are_one_row_in_all_models(make_run: MakeRun) -> None:
    apart = {"embedding": 40, "rnn.l0": 30, "rnn.l1": 40}
    together = {"embedding+rnn.l1": 12, "rnn.l0": 8}
    again = {"embedding": 12, "rnn.l0": 8, "rnn.l1": 12}
    neurons = {"dense": apart, "small": together, "control": again}
    folder = make_run(summaries={kind: {"neurons": n} for kind, n in neurons.items()})
    page = Page(write_report([folder]))
    assert page.row("neurons, embedding+rnn.l1") == ["40", "12", "12", "30 %"]
    assert page.row("neurons, rnn.l0") == ["30", "8", "8", "27 %"]
    names = [row[0] for row in page.tables["Dense, small and control model"]]
    assert sum(name.startswith("neurons") for name in names) == 2


def test_a_run_that_has_just_begun_has_a_report(make_run: MakeRun) -> None:
    folder = make_run(finished=False)
    (folder / "metrics.jsonl").write_text("")
    (folder / "dense.json").unlink()
    page = Page(write_report([folder]))
    assert "no epoch" in page.text
    assert page.charts == [] and page.sections == ["configuration"]


def test_one_epoch_is_enough(make_run: MakeRun) -> None:
    page = Page(write_report([make_run(epochs=1)]))
    assert "valid-perplexity" in page.charts
    assert [row[0] for row in page.tables["Validation perplexity by epoch"]] == ["epoch", "1"]


def test_two_thousand_epochs_stay_readable(make_run: MakeRun) -> None:
    path = write_report([make_run(epochs=2_000, groups={"lstm.l0": 8, "lstm.l1": 8})])
    page = Page(path)
    assert page.charts == ["valid-perplexity", "kept", "params", "penalty"]
    rows = page.tables["Neurons kept by epoch"]
    assert len(rows) == 401 and rows[-1][0] == "2,000"
    assert path.stat().st_size < 1_000_000


def test_sixty_groups_stay_readable(make_run: MakeRun) -> None:
    groups = {f"encoder.layer{i}.lstm": 16 for i in range(60)}
    path = write_report([make_run(epochs=30, groups=groups)])
    page = Page(path)
    assert len(page.tables["Neurons kept by epoch"][0]) == 61
    assert len(page.tables["Neurons per group"]) == 61
    assert len([a for a in page.attributes("img") if "Gate values" in (a["alt"] or "")]) == 60
    assert path.stat().st_size < 1_000_000


def test_values_that_are_not_finite_leave_gaps(make_run: MakeRun) -> None:
    def spoil(x: dict[str, Any]) -> dict[str, Any]:
        if x["epoch"] == 3:
            x |= {"valid_perplexity": math.inf, "penalty": math.nan, "params": None}
            x["values"] = {group: [math.nan] * len(v) for group, v in x["values"].items()}
        return x

    folder = make_run(epochs=6)
    change_epochs(folder, spoil)
    (folder / "dense.json").write_text('{"valid_perplexity": NaN, "test_perplexity": Infinity}')
    page = Page(write_report([folder]))
    assert page.row("3", "Validation perplexity by epoch") == ["∞", "∞", "∞"]
    assert page.row("3", "Penalty by epoch") == ["–"]
    assert "3 values" in page.text
    assert not re.search(r'="[^"]*\b(nan|inf)\b', page.source)


def test_a_penalty_that_is_always_zero_is_not_drawn(make_run: MakeRun) -> None:
    folder = make_run(epochs=3)
    change_epochs(folder, lambda x: x | {"penalty": 0.0})
    charts = Page(write_report([folder])).charts
    assert "penalty" not in charts and "params" in charts


def test_all_values_missing_draws_no_empty_chart(make_run: MakeRun) -> None:
    folder = make_run(epochs=2)
    line = {"event": "epoch", "phase": "gated", "epoch": 1, "valid_perplexity": None}
    (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    assert Page(write_report([folder])).charts == []


def test_names_are_shown_as_they_are_and_never_become_markup(make_run: MakeRun) -> None:
    folder = make_run(
        'a<i>&"b',
        epochs=3,
        groups={NASTY: 10, "lstm.l0": 10},
        config={"settings": {NASTY: NASTY}, "command": NASTY, "recipe": NASTY, "preset": NASTY},
    )
    for runs in ([folder], [folder, make_run("other", epochs=2)]):
        page = Page(write_report(runs))
        assert not page.attributes("script") and not page.attributes("b")[0].get("onclick")
        assert NASTY in page.row(NASTY, "Settings") and 'a<i>&"b' in page.text


def test_two_runs_are_both_on_top(two_runs: list[Path]) -> None:
    page = Page(write_report(two_runs))
    assert "<title>a and b · thinrnn report</title>" in page.source
    assert "<h1>a and b</h1>" in page.source
    assert page.sections == ["result", "tradeoff", "training", "configuration"]
    assert page.charts == [
        "tradeoff-weights", "tradeoff-time", "valid-perplexity", "params",
    ]  # fmt: skip
    models = page.tables["All models"]
    assert [row[0] for row in models[1:]] == [
        f"{run}, {kind}" for run in "ab" for kind in ("dense", "small", "control")
    ]
    assert page.row("a, small", "All models") == ["428 k", "81.93", "3.61 ms", "3.43×"]
    assert page.row("b, small", "All models") == ["190 k", "84.90", "1.90 ms", "6.53×"]
    assert page.tables["Settings that differ"] == [
        ["", "a", "b"], ["lr", "0.002", "0.004"], ["target.params", "0.25", "0.1"],
    ]  # fmt: skip
    assert page.text.index("6.53×") < page.text.index("Trade-off")


def test_runs_of_the_same_name_can_be_told_apart(make_run: MakeRun) -> None:
    first, second = make_run("x/run", epochs=2), make_run("y/run", epochs=2)
    page = Page(write_report([first, second, second]))
    assert "x/run and y/run and y/run (2)" in page.text


def test_validation_is_compared_where_a_test_value_is_missing(make_run: MakeRun) -> None:
    runs = [make_run("a", summaries={"control": {"test_perplexity": None}}), make_run("b")]
    page = Page(write_report(runs))
    assert page.tables["All models"][0][2] == "validation perplexity"
    assert page.row("a, small", "All models")[1] == "85.13"


def test_further_parts_of_the_configuration_are_shown(make_run: MakeRun) -> None:
    page = Page(write_report([make_run(config={"text": {"train_tokens": 50313}})]))
    assert page.row("train_tokens", "Text") == ["50313"]


def test_the_report_goes_where_it_should(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run()
    assert write_report([folder]) == folder / "report.html"
    assert write_report([folder], tmp_path / "mine.html") == tmp_path / "mine.html"
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["mine.html"]


def test_bad_input_is_refused_and_the_old_report_stays(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run()
    path = write_report([folder])
    before = path.read_bytes()
    (folder / "dense.json").write_text("{")
    with pytest.raises(RunError, match=r"dense\.json' is damaged"):
        write_report([folder])
    assert path.read_bytes() == before
    with pytest.raises(RunError, match="no run folder"):
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


def test_a_missing_extra_is_named(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match="jinja2"):
        write_report([make_run()])


def test_a_reader_is_shown_by_em_and_f1_of_which_more_is_better(make_run: MakeRun) -> None:
    scores = {"small": {"em": 66.5, "f1": 76.25}, "control": {"em": 65.0, "f1": 75.0}}
    scores["dense"] = {"em": 68.0, "f1": 77.0}
    runs = [make_run(name, epochs=3, summaries=scores) for name in ("a", "b")]
    for folder in runs:
        change_epochs(folder, lambda x: x | {"em": 5.0 - x["epoch"], "f1": 20.0 - x["epoch"]})
    page = Page(write_report(runs[:1]))
    assert page.charts[:2] == ["f1", "em"]
    assert page.cards()["F1"] == ("76.25", "dense 77.00, control 75.00")
    assert "perplexity" not in page.row("F1")
    assert not any("perplexity" in row[0] for row in page.tables["Dense, small and control model"])
    assert "dense 19.00" in re.sub("</?b>", "", page.source)  # the first epoch was the best
    assert Page(write_report(runs)).tables["All models"][0][2] == "F1"


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("embedding+rnn.l1", ["embedding+", "rnn.", "l1"]),
        ("perplexity, test", ["perplexity, test"]),
        ("weight_ih_l0", ["weight_", "ih_", "l0"]),
    ],
)
def test_a_name_breaks_at_its_joints_alone(name: str, pieces: list[str]) -> None:
    assert str(breakable(name)).split("<wbr>") == pieces
