"""What a run folder may look like, and which file is named when one is damaged."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from thinrnn.errors import RunError
from thinrnn.lab.report.read import Measure, read_run

MakeRun = Callable[..., Path]


def test_a_finished_run_is_read_whole(make_run: MakeRun) -> None:
    run = read_run(make_run("demo", epochs=5))
    assert run.name == "demo" and run.finished
    assert set(run.summaries) == {"dense", "small", "control"}
    assert [e.epoch for e in run.phase("gated")] == [1, 2, 3, 4, 5]
    assert run.phase("gated")[0].values["lstm.l0"].shape == (200,)
    assert run.matrices[0].name == "embedding.weight"
    assert len(run.matrices[0].kept_rows) == 2000  # null means all of them
    assert len(run.matrices[0].kept_columns) == 100


def test_a_run_that_has_only_its_configuration_is_a_run(make_run: MakeRun) -> None:
    folder = make_run(finished=False)
    (folder / "metrics.jsonl").unlink()
    (folder / "dense.json").unlink()
    run = read_run(folder)
    assert not run.finished and run.epochs == () and run.matrices == ()


def test_a_torn_last_line_is_left_out(make_run: MakeRun) -> None:
    folder = make_run(epochs=3)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"event": "epoch", "phase": "control", "epo')
    assert len(read_run(folder).phase("control")) == 3


def test_the_later_measurement_of_an_epoch_counts(make_run: MakeRun) -> None:
    folder = make_run(epochs=3)
    again = {"event": "epoch", "phase": "dense", "epoch": 2, "valid_perplexity": 7.0}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(again) + "\n")
    run = read_run(folder)
    assert [e.epoch for e in run.phase("dense")] == [1, 2, 3]
    assert run.phase("dense")[1]["valid_perplexity"] == 7.0
    assert run.epochs[-1]["valid_perplexity"] == 7.0


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "missing", tmp_path, tmp_path / "file"):
        with pytest.raises(RunError, match="not a run folder"):
            read_run(path)


@pytest.mark.parametrize(
    "name",
    ["config.json", "metrics.jsonl", "dense.json", "small.json", "control.json", "pattern.json"],
)
@pytest.mark.parametrize("content", [b'{"kind": "de\n', b"\n", b"\xff\xfe\x00\n", b"[1, 2]\n"])
def test_a_damaged_file_is_named(make_run: MakeRun, name: str, content: bytes) -> None:
    folder = make_run(epochs=2)
    (folder / name).write_bytes(content)
    with pytest.raises(RunError, match=name):
        read_run(folder)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("small.json", {"neurons": 3}, "small.json' is damaged: neurons"),
        (
            "pattern.json",
            {"matrices": [{"name": "w", "rows": 2, "columns": 2, "kept_rows": [5]}]},
            "outside 0..1",
        ),
        (
            "pattern.json",
            {"matrices": [{"name": "w", "rows": 0, "columns": 2}]},
            "matrices.0.rows: .*greater than or equal to 1",
        ),
        ("pattern.json", {"matrices": [{"name": "w"}]}, "pattern.json' is damaged: matrices"),
    ],
)
def test_a_file_with_wrong_contents_is_named(
    make_run: MakeRun, name: str, data: object, reason: str
) -> None:
    folder = make_run(epochs=2)
    (folder / name).write_text(json.dumps(data))
    with pytest.raises(RunError, match=reason):
        read_run(folder)


def gated_epochs(folder: Path, **changes: list[float]) -> None:
    """Writes a gated phase of four epochs that ends with 5 neurons and 100 parameters."""
    kept, params = (10, 6, 5, 5), (300, 150, 100, 100)
    lines = [
        {"event": "epoch", "phase": "gated", "epoch": i + 1, "kept": {"rnn": kept[i]}}
        | {"params": params[i], "target": 100}
        | {key: values[i] for key, values in changes.items()}
        for i in range(4)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_best_epoch_has_the_final_size(make_run: MakeRun) -> None:
    folder = make_run()
    gated_epochs(folder, valid_perplexity=[50.0, 51.0, 62.0, 60.0], f1=[9.0, 8.0, 7.0, 6.0])
    run = read_run(folder)
    f1, em = run.metrics
    assert [e.epoch for e in run.at_size("gated")] == [3, 4]
    best = f1.best(run.at_size("gated"))
    assert best is not None and best.epoch == 3
    assert em.best(run.at_size("gated")) is None  # never measured
    perplexity = Measure("valid_perplexity", "perplexity", lower_is_better=True)
    best = perplexity.best(run.at_size("gated"))
    assert best is not None and best.epoch == 4


def test_a_run_above_its_target_has_no_best_epoch_yet(make_run: MakeRun) -> None:
    folder = make_run(finished=False)
    gated_epochs(folder)
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:2]))
    assert read_run(folder).at_size("gated") == []


def test_a_run_may_name_its_metrics(make_run: MakeRun) -> None:
    metrics = {"valid_bits": "lower", "test_bits": "lower", "accuracy": "higher"}
    run = read_run(make_run(config={"metrics": metrics}))
    assert [(m.key, m.lower_is_better) for m in run.metrics] == [
        ("test_bits", True), ("valid_bits", True), ("accuracy", False),
    ]  # fmt: skip
