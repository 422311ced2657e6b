"""The benchmarks on a trained run: every cell is measured, and an interrupted one goes on."""

import json
import sys

import pytest

pytestmark = pytest.mark.extended
RUN = {
    **{"minutes": "none", "embedding": 10, "hidden": "12,12", "epochs": 2, "batch": 8},
    **{"bptt": 16, "lr": 0.01},
    **{"phases": "dense", "tensorboard": "no", "device": "cpu", "threads": 1, "bench_seconds": 0},
}


@pytest.fixture(scope="module")
def run(texts, tmp_path_factory):
    from thinrnn.lab.cli import main

    folder = tmp_path_factory.mktemp("runs") / "lm"
    options = [part for k, v in RUN.items() for part in ("--set", f"{k}={v}")]
    with pytest.raises(SystemExit):
        main(["train", "lm", "--data", str(texts), "--out", str(folder), *options])
    return folder


def call(module, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", [f"{module.__name__}.py", *map(str, arguments)])
    module.main()


def test_one_shot_against_gates(run, monkeypatch, tmp_path):
    from benchmarks import one_shot

    out = tmp_path / "one-shot.json"
    given = [run, "--steps=2", "--gate-steps=20", "--calls=4", "--set", "dropout=0.1"]
    given += ["--set", "small_dropout=0.05", "--out", out]
    given += ["--macs", 0.7, 0.5, "--rates", 0.1, 0.2, "--gate-rates", 0.1, 0.2]
    for done in range(5):  # stops after every cell, and goes on
        call(one_shot, monkeypatch, *given, "--scores", "taylor", "--seconds", 1e-9)
        found = json.loads(out.read_text())
        measured = len(found["dense_rates"]) + len(found["one_shot"])
        assert measured + len(found["gates"]) // 2 == done + 1
    call(one_shot, monkeypatch, *given)
    record = json.loads(out.read_text())
    for row in record["rates"]:
        (default,) = (
            cell
            for cell in record["one_shot"]
            if cell["macs"] == row["macs"] and one_shot.DEFAULT.items() <= cell.items()
        )
        assert default["trained"] == min(one["trained"] for one in row["tried"])
    assert record["dense_trained"] == min(one["trained"] for one in record["dense_rates"])
    cells = [tuple(row[name] for name in one_shot.OF_A_CELL) for row in record["one_shot"]]
    assert len(set(cells)) == len(cells) == 2 * 4 * 2
    gates = [(row["gate_rate"], row["macs"]) for row in record["gates"]]
    assert gates == [(rate, macs) for rate in (0.1, 0.2) for macs in (0.7, 0.5)]
    assert [row["steps"] for row in record["as_long"]] == [
        row["gate_steps"] + 2 for row in record["gates"][:2]
    ]
    for row in (*record["one_shot"], *record["gates"], *record["as_long"]):
        assert row["real_macs"] <= row["macs"] and row["pruned"] > 1 and row["trained"] > 1
    with pytest.raises(SystemExit, match="another model or training"):
        call(one_shot, monkeypatch, *given, "--steps=3")


@pytest.mark.filterwarnings("ignore:Target closes")
def test_both_starts_of_gates(run, monkeypatch, tmp_path):
    from benchmarks import gate_start

    out = tmp_path / "gate-start.json"
    given = [run, "--steps=2", "--gate-steps=10", "--macs=0.6", "--seeds=2", "--calls=4"]
    call(gate_start, monkeypatch, *given, "--out", out)
    record = json.loads(out.read_text())
    assert [row["start"] for row in record["means"]] == ["alike", "reconstruct"]
    assert all(row["seeds"] == 2 for row in record["means"]) and len(record["cells"]) == 4
