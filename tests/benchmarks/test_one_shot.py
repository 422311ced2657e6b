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
    given = [run, "--steps=2", "--gate-steps=20", "--calls=4", "--set", "dropout=0.1", "--out", out]
    call(one_shot, monkeypatch, *given, "--macs", 0.7, 0.5, "--scores", "taylor")
    call(one_shot, monkeypatch, *given, "--macs", 0.7, 0.5)
    record = json.loads(out.read_text())
    cells = [tuple(row[name] for name in one_shot.OF_A_CELL) for row in record["one_shot"]]
    assert len(set(cells)) == len(cells) == 2 * 4 * 2
    assert [row["macs"] for row in record["gates"]] == [0.7, 0.5]
    assert [row["steps"] for row in record["as_long"]] == [
        row["gate_steps"] + 2 for row in record["gates"]
    ]
    for row in (*record["one_shot"], *record["gates"], *record["as_long"]):
        assert row["real_macs"] <= row["macs"] and row["pruned"] > 1 and row["trained"] > 1
    with pytest.raises(SystemExit, match="another model or training"):
        call(one_shot, monkeypatch, run, "--steps=3", "--calls=4", "--out", out)


@pytest.mark.filterwarnings("ignore:Target closes")
def test_both_starts_of_gates(run, monkeypatch, tmp_path):
    from benchmarks import gate_start

    out = tmp_path / "gate-start.json"
    given = [run, "--steps=2", "--gate-steps=10", "--macs=0.6", "--seeds=2", "--calls=4"]
    call(gate_start, monkeypatch, *given, "--out", out)
    record = json.loads(out.read_text())
    assert [row["start"] for row in record["means"]] == ["alike", "reconstruct"]
    assert all(row["seeds"] == 2 for row in record["means"]) and len(record["cells"]) == 4
