"""Training by a preset with --data: the folder is checked before anything is written."""

import json
import random

import pytest


def write_texts(folder):
    folder.mkdir()
    dice = random.Random(3)
    for name, lines in (("train", 60), ("valid", 10), ("test", 10)):
        rows = (" ".join(dice.choices("abcdefgh", k=8)) for _ in range(lines))
        (folder / f"ptb.{name}.txt").write_text("\n".join(rows) + "\n")
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "ptb-paper is for the Penn Treebank: give --data DIR; 'thinrnn data ptb DIR'"),
        (["--data", "nowhere"], "nowhere is not a folder: 'thinrnn data ptb nowhere' makes it"),
        (["--data", "texts"], "ptb.train.txt is not the published file of the Penn Treebank"),
        (["--data", "."], ". has no ptb.train.txt: 'thinrnn data ptb .' downloads the Penn"),
    ],
)
def test_a_preset_for_a_corpus_takes_nothing_else(arguments, message, tmp_path, call, monkeypatch):
    write_texts(tmp_path / "texts")
    monkeypatch.chdir(tmp_path)
    code, printed, err = call("train", "ptb-paper", *arguments)
    assert code == 2 and message in err and err.count("\n") == 1 and not printed
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]


def test_data_gives_all_three_texts(tmp_path, call):
    texts = write_texts(tmp_path / "texts")
    options = {
        "minutes": "none",
        "hidden": "4,4",
        "embedding": 4,
        "epochs": 1,
        "batch": 4,
        "phases": "dense",
    }
    options |= {"tensorboard": "no", "device": "cpu", "threads": 1, "bench_seconds": 0}
    settings = [part for key, value in options.items() for part in ("--set", f"{key}={value}")]
    run = tmp_path / "run"
    code, _, _ = call("train", "lm", "--data", texts, "--out", run, "--json", *settings)
    assert code == 0
    config = json.loads((run / "config.json").read_text())
    assert config["settings"]["test"] == str(texts / "ptb.test.txt")
    assert config["text"]["test_tokens"] == 90
    code, _, err = call("train", "--resume", run, "--data", texts)
    assert code == 2 and "--resume takes everything from the run folder" in err
