"""Published runs: everything that matters, and nothing about the machine's folders."""

import json
import random
import re
import shutil

import pytest

from thinrnn.lab.cli import main
from thinrnn.lab.data import corpora
from thinrnn.lab.recipes.language_model import corpus as texts_module
from thinrnn.lab.run import RunFolder
from tools.results.__main__ import main as results_main
from tools.results.publish import one_line_lists, without_paths

OPTIONS = {
    "minutes": "none",
    "embedding": 10,
    "hidden": "12,12",
    "epochs": 2,
    "batch": 8,
    "bptt": 16,
    "lr": 0.01,
    "target_params": 0.5,
    "phases": "gated,control",
    "tensorboard": "no",
    "device": "cpu",
    "threads": 1,
    "bench_batch": 1,
    "bench_steps": 2,
    "bench_seconds": 0,
    "seed": 3,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    dice = random.Random(3)
    words = [f"w{i}" for i in range(30)]
    for name, lines in (("train", 120), ("valid", 20), ("test", 20)):
        rows = (" ".join(dice.choices(words, k=8)) for _ in range(lines))
        (folder / f"my.{name}.txt").write_text("\n".join(rows) + "\n")
    return folder


def train(data, folder, **changes):
    chosen = OPTIONS | changes
    options = [part for key, value in chosen.items() for part in ("--set", f"{key}={value}")]
    arguments = ["train", "lm", "--data", data, "--out", folder, "--json", *options]
    with pytest.raises(SystemExit) as left, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["thinrnn", *map(str, arguments)])
        main(None)
    assert left.value.code in (0, 1)  # in so few steps models learn too little for the verdicts
    return folder


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    return train(data, tmp_path_factory.mktemp("runs") / "mine")


def test_a_run_becomes_one_file_without_local_paths(run, data, tmp_path, publish):
    code, printed, _ = publish(run, "--to", tmp_path / "results")
    path = tmp_path / "results/lm-seed3.json"
    assert code == 0 and f"wrote {path}" in printed
    text = path.read_text()
    result = json.loads(text)
    assert str(run.parent) not in text and str(data) not in text
    assert not re.search(r'["\s=]/\w', text)
    assert result["command"].startswith(f"thinrnn train lm --data {data.name} --out mine")
    assert result["settings"]["train"] == "my.train.txt"
    assert (result["preset"], result["seed"], result["settings"]["hidden"]) == ("lm", 3, [12, 12])
    assert {"torch", "python", "platform"} <= result["environment"].keys()
    assert len(result["text"]["sha256"]) == 64 and "corpus" not in result["text"]
    small = json.loads((run / "small.json").read_text())
    assert result["models"]["small"] == small and list(result["models"]) == ["small", "control"]
    gated = result["curves"]["gated"]
    assert gated["epoch"] == [1, 2] and len(gated["seconds"]) == 2
    assert gated["kept"]["embedding"][-1] == small["neurons"]["embedding"]
    assert gated["params"][-1] == small["params"]
    assert gated["valid_perplexity"][-1] == pytest.approx(small["valid_perplexity"], abs=0.01)
    assert result["curves"]["control"]["kept"] == {}
    assert "rnn.weight_hh_l0: 48 × 12 → " in (tmp_path / "results/lm-seed3.svg").read_text()


def test_the_stored_model_is_measured_as_loaded_and_eval_agrees(run, data, tmp_path, call, publish):
    code, printed, _ = publish(
        *(run, "--to", tmp_path, "--name", "mine"),
        *("--store", "int8", "--data", data, "--json"),
    )
    assert code == 0 and json.loads(printed)["written"] == [str(tmp_path / "mine.json")]
    stored = json.loads((tmp_path / "mine.json").read_text())["stored"]
    folder = tmp_path / "models/mine"
    assert stored["bytes"] == sum(file.stat().st_size for file in folder.iterdir())
    code, printed, _ = call("eval", folder, "--data", data, "--json")
    measured = json.loads(printed)
    assert code == 0
    for name in ("valid_perplexity", "test_perplexity", "weights"):
        assert measured[name] == stored[name]
    small = json.loads((run / "small.json").read_text())
    assert stored["weights"] == small["weights"]
    assert stored["valid_perplexity"] == pytest.approx(small["valid_perplexity"], rel=0.02)


def test_a_stored_model_is_stored_again_in_another_precision(run, data, tmp_path, publish):
    publish(run, "--to", tmp_path / "results", "--name", "mine", "--store", "float16")
    before = json.loads((tmp_path / "results/mine.json").read_text())
    results = ["--to", str(tmp_path / "results"), "--data", str(data)]
    assert results_main(["store", "mine", "--precision", "int8", *results]) == 0
    after = json.loads((tmp_path / "results/mine.json").read_text())
    assert after["stored"]["precision"] == "int8"
    folder = tmp_path / "results/models/mine"
    assert json.loads((folder / "thinrnn.json").read_text())["precision"] == "int8"
    assert after["models"] == before["models"]
    assert results_main(["store", "yours", "--precision", "int8", *results]) == 2


def test_a_control_trained_beside_the_run_is_its_control(run, data, tmp_path, publish):
    embedding, *hidden = json.loads((run / "small.json").read_text())["neurons"].values()
    sizes = {"embedding": embedding, "hidden": ",".join(map(str, hidden)), "phases": "control"}
    gated = train(data, tmp_path / "gated", phases="gated")
    elsewhere = shutil.copytree(data, tmp_path / "elsewhere")
    control = train(elsewhere, tmp_path / "control", **sizes)
    code, _, error = publish(gated, "--control", control, "--to", tmp_path, "--name", "both")
    assert code == 0, error
    both = json.loads((tmp_path / "both.json").read_text())
    inside = json.loads((run / "control.json").read_text())
    for key in ("valid_perplexity", "test_perplexity", "weights"):
        assert both["models"]["control"][key] == inside[key]
    assert "phases=control" in both["control_run"]["command"]
    assert len(both["curves"]["control"]["epoch"]) == OPTIONS["epochs"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"lr": 0.02}, "its lr is 0.02, not 0.01"),
        ({"seed": 4}, "seed is 4, not 3"),
        ({}, "it has neurons"),
    ],
)
def test_a_run_with_another_seed_setting_or_shape_is_no_control(
    run, data, tmp_path, publish, changes, reason
):
    other = train(data, tmp_path / "other", phases="control", epochs=1, **changes)
    config = json.loads((other / "config.json").read_text())
    config["settings"]["epochs"] = OPTIONS["epochs"]
    (other / "config.json").write_text(json.dumps(config))
    code, _, error = publish(run, "--control", other, "--to", tmp_path)
    assert code == 2 and "is no control of" in error and reason in error
    assert not list(tmp_path.glob("*.json"))


def test_pages_beside_the_results_are_written_again(run, tmp_path, publish):
    (tmp_path / "RESULTS.md").write_text("old")
    code, printed, _ = publish(run, "--to", tmp_path / "results", "--name", "ptb-gru")
    assert code == 0 and "RESULTS.md" in printed
    assert "[GRU](results/ptb/ptb-gru.json)" in (tmp_path / "RESULTS.md").read_text()


def test_a_public_corpus_is_named_with_its_files(run, tmp_path, publish, monkeypatch):
    found = json.loads((run / "config.json").read_text())["text"]["sha256"]
    facts = texts_module.Facts({}, 0, found)
    monkeypatch.setitem(texts_module.FACTS, "ptb", facts)
    publish(run, "--to", tmp_path, "--name", "x")
    text = json.loads((tmp_path / "x.json").read_text())["text"]
    assert text["corpus"] == "Penn Treebank"
    assert text["files"] == {file.name: file.sha256 for file in corpora.PTB.files}


def test_what_cannot_be_published_is_reported(run, tmp_path, publish):
    assert "nowhere is not a run folder" in publish("nowhere")[2]
    code, _, err = publish(run, run, "--name", "x", "--to", tmp_path)
    assert code == 2 and "--name works with one run" in err
    code, _, err = publish(run, "--store", "int4", "--to", tmp_path)
    assert code == 2 and "int4" in err
    (tmp_path / "half").mkdir()
    (tmp_path / "half/config.json").write_text((run / "config.json").read_text())
    code, _, err = publish(tmp_path / "half", "--to", tmp_path)
    assert code == 2 and "is not finished (gated, control is missing)" in err
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a/b/c.txt", "c.txt"),
        ("thinrnn train x --data ../../d/ptb --out ~/runs/x", "thinrnn train x --data ptb --out x"),
        ("--set 'teacher=/a/b c'", "--set 'teacher=b c'"),
        ("--set teacher=/a/b,c/d,/e/f", "--set teacher=b,c/d,f"),
        ("--set teacher=/a/b/dense,../c/dense", "--set teacher=b/dense,c/dense"),
        ("/a/b/dense", "b/dense"),
        ("/a/dense/b /a/b/denser /dense", "b denser dense"),
        ("runs/a/b", "runs/a/b"),
        ("3 tokens/s and 1/2", "3 tokens/s and 1/2"),
    ],
)
def test_local_paths_keep_their_last_part_or_run_and_model(text, expected):
    assert without_paths({"a": [text, 1]}) == {"a": [expected, 1]}


def test_lists_of_numbers_are_on_one_line():
    value = {"a": [1, 2.5, None], "b": [], "c": [{"d": ["x", "y"]}], "e": ["a, [b]"]}
    text = one_line_lists(value)
    assert json.loads(text) == value
    assert '"a": [1, 2.5, null]' in text and '"d": ["x", "y"]' in text


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "/x"])
def test_a_name_that_leaves_the_folder_of_results_is_refused(tmp_path, publish, name):
    RunFolder.create(tmp_path / "run", {"recipe": "language_model", "settings": {}})
    code, _, err = publish(tmp_path / "run", "--name", name, "--to", tmp_path / "to")
    assert code == 2 and "is no name for a file" in err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
