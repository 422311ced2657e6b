"""The commands as a user calls them: what they print and write, and their exit codes."""

import errno
import json
import shlex

import pytest

from thinrnn.lab.cli import main

TINY = {
    "minutes": "none",  # nothing is chosen from the text
    "cell": "gru",
    "embedding": 10,
    "hidden": "12,12",
    "epochs": 2,
    "batch": 2,
    "bptt": 16,
    "lr": 0.05,
    "target_params": 0.5,
    "tensorboard": "no",
    "device": "cpu",
    "threads": 1,
    "bench_batch": 1,
    "bench_steps": 2,
    "bench_seconds": 0,
}


def options(**changes):
    return [part for k, v in {**TINY, **changes}.items() for part in ("--set", f"{k}={v}")]


@pytest.fixture(scope="module")
def run(texts, tmp_path_factory):
    """A finished run, made by the command itself."""
    folder = tmp_path_factory.mktemp("runs") / "lm"
    files = [part for n in ("train", "valid", "test") for part in (f"--{n}", texts / f"{n}.txt")]
    with pytest.raises(SystemExit) as left:
        main([str(a) for a in ("train", "lm", *files, "--out", folder, *options())])
    assert not left.value.code
    return folder


def test_train_ends_with_a_table_and_the_next_command(texts, tmp_path, call):
    out = tmp_path / "run"
    code, printed, _ = call(
        *("train", "lm", "--train", texts / "train.txt", "--valid", texts / "valid.txt"),
        *("--out", out, *options()),
    )
    assert code == 0
    assert "gated    epoch   2/2" in printed
    small = json.loads((out / "small.json").read_text())
    assert f"{small['weights']:,}" in printed and f"{small['valid_perplexity']:.2f}" in printed
    assert "FAILED" not in printed
    assert printed.splitlines()[-1] == f"wrote {out}/report.html; next: thinrnn generate {out}"
    assert {"config.json", "metrics.jsonl", "model", "small.json", "pattern.json"} <= {
        path.name for path in out.iterdir()
    }
    config = json.loads((out / "config.json").read_text())
    assert config["preset"] == "lm" and config["settings"]["hidden"] == [12, 12]
    assert config["settings"]["train"] == str(texts / "train.txt")


def test_train_prints_one_json_object(texts, tmp_path, call):
    code, printed, err = call(
        *("train", "lm", "--train", texts / "train.txt", "--valid", texts / "valid.txt"),
        *("--out", tmp_path / "run", "--json", *options(seed=4)),
    )
    result = json.loads(printed)
    assert code == 0 and result["kept"] is True
    assert result["small"]["test_perplexity"] is None
    assert result["small"]["params"] <= 0.5 * result["dense"]["params"]
    assert "gated    epoch   2/2" in err


def test_a_config_file_is_applied_and_set_wins_over_it(texts, tmp_path, call):
    file = tmp_path / "my.toml"
    lines = [f"{k} = {v!r}" for k, v in TINY.items() if k not in ("cell", "hidden", "tensorboard")]
    file.write_text("\n".join([*lines, "hidden = [9, 9]", "tensorboard = false", 'cell = "rnn"']))
    code, _, _ = call(
        *("train", "lm", "--train", texts / "train.txt", "--valid", texts / "valid.txt"),
        *("--config", file, "--set", "cell=gru", "--set", "phases=dense"),
        *("--out", tmp_path / "run", "--json"),
    )
    assert code == 0
    settings = json.loads((tmp_path / "run/config.json").read_text())["settings"]
    assert (settings["cell"], settings["hidden"], settings["epochs"]) == ("gru", [9, 9], 2)


def test_runs_without_a_name_get_a_free_one(texts, tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = ("--train", texts / "train.txt", "--valid", texts / "valid.txt")
    for name in ("runs/lm", "runs/lm-2"):
        _, printed, _ = call("train", "lm", *files, *options(phases="dense"), "--json")
        assert json.loads(printed)["run"] == name
    code, printed, _ = call("list")
    assert code == 0 and "runs/lm-2" in printed


def test_the_command_that_follows_a_dense_model_alone_works(texts, tmp_path, call):
    files = ("--train", texts / "train.txt", "--valid", texts / "valid.txt")
    out = tmp_path / "my run"  # a shell needs it quoted
    code, printed, _ = call("train", "lm", *files, "--out", out, *options(phases="dense"))
    for after in ("eval", "bench", "report"):
        command = shlex.split(printed.splitlines()[-1].rpartition("thinrnn ")[2])
        assert code == 0 and command[:2] == [after, str(out)]
        code, printed, err = call(*command)
        assert code == 0, err
    assert "it has: dense. Choose one with --kind" in call("eval", out)[2]


def test_resume_of_a_finished_run_prints_its_table(run, call):
    code, printed, _ = call("train", "--resume", run)
    assert code == 0 and "valid perplexity" in printed and "epoch" not in printed


def test_a_failed_verdict_is_printed_and_sets_the_exit_code(texts, tmp_path, call):
    code, printed, _ = call(
        "demo",
        "--out",
        tmp_path / "demo",
        *options(min_count=40, epochs=1, batch=100, bptt=60, tied="no"),
    )
    assert code == 1
    broken = [line for line in printed.splitlines() if line.startswith("FAILED  ")]
    assert any("weights, under a third of" in line for line in broken)  # the setting is half
    for command in ("demo", "train"):  # resuming ends in the same verdicts
        code, again, _ = call(command, "--resume", tmp_path / "demo")
        assert code == 1
        assert [line for line in again.splitlines() if line.startswith("FAILED  ")] == broken


def test_eval_measures_what_the_run_measured(run, texts, call):
    code, printed, _ = call("eval", run, "--json")
    measured, small = json.loads(printed), json.loads((run / "small.json").read_text())
    assert code == 0
    assert measured["valid_perplexity"] == pytest.approx(small["valid_perplexity"], rel=1e-4)
    assert measured["weights"] == small["weights"]
    code, printed, _ = call("eval", run / "model", "--data", texts)
    assert code == 0 and f"test perplexity   {small['test_perplexity']:.3f}" in printed
    code, printed, _ = call("eval", run, "--kind", "dense", "--json")
    dense = json.loads((run / "dense.json").read_text())
    assert json.loads(printed)["weights"] == dense["weights"]


def test_compact_makes_the_small_model_again(run, texts, tmp_path, call):
    code, printed, _ = call(
        "compact", run, "--out", tmp_path / "thin", "--precision", "int8", "--json"
    )
    made, small = json.loads(printed), json.loads((run / "small.json").read_text())
    assert code == 0 and made["neurons"] == small["neurons"] and made["difference"] < 1e-4
    code, printed, _ = call("eval", tmp_path / "thin", "--valid", texts / "valid.txt", "--json")
    found = json.loads(printed)
    assert found["valid_perplexity"] == pytest.approx(small["valid_perplexity"], rel=0.02)


@pytest.mark.extended
def test_bench_times_models_of_runs_side_by_side(run, call):
    options = ("--runtimes", "eager", "--seconds", 0, "--shape", "2x3")
    code, printed, _ = call("bench", run, run / "model", *options, "--json")
    result = json.loads(printed)
    assert code == 0 and result["untrained"] == []
    (case,) = result["cases"]
    assert (case["batch"], case["steps"], case["threads"]) == (2, 3, 1)
    assert [*case["models"]] == ["lm/dense", "lm/small", "lm/control", str(run / "model")]
    assert result["headline"]["over"] == "lm/dense" and result["headline"]["model"] == "lm/small"
    for path, after in ((run, "report"), (run / "model", "export")):  # a model has no report
        code, printed, _ = call("bench", path, *options)
        assert code == 0 and f"next: thinrnn {after} {path}" in printed.splitlines()[-1]


def test_generate_continues_a_prompt_the_same_way_each_time(run, call):
    arguments = ("generate", run, "--prompt", "w1 w2", "--tokens", 12, "--json")
    code, printed, _ = call(*arguments)
    text = json.loads(printed)["text"]
    assert code == 0 and text.startswith("w1 w2") and "<unk>" not in text
    assert len(text.split()) > 4
    assert json.loads(call(*arguments)[1])["text"] == text
    assert json.loads(call(*arguments, "--seed", 1)[1])["text"] != text
    assert call("generate", run, "--temperature", 0, "--tokens", 5)[0] == 0


def test_report_writes_one_file_about_several_runs(run, tmp_path, call):
    code, printed, _ = call("report", run, run, "--out", tmp_path / "both.html")
    assert code == 0 and printed.startswith(f"wrote {tmp_path / 'both.html'}; next:")
    assert (tmp_path / "both.html").stat().st_size > 1000


def test_list_shows_presets_runs_and_settings(run, call):
    code, printed, _ = call("list", run.parent, "--json")
    listed = json.loads(printed)
    assert code == 0 and {"lm", "demo"} <= {preset["name"] for preset in listed["presets"]}
    assert listed["runs"][0]["done"] == "dense, small, control"
    assert "ptb-paper" not in {preset["name"] for preset in listed["presets"]}
    everything = json.loads(call("list", "--all", "--json")[1])["presets"]
    assert {"lm", "ptb-paper", "squad-paper"} <= {preset["name"] for preset in everything}
    code, printed, _ = call("list", "--settings", "lm")
    assert code == 0 and "target_params" in printed and "parameters to end with" in printed
    assert any(line.split()[:2] == ["hidden", "(chosen)"] for line in printed.splitlines())


def test_list_names_the_next_command_for_a_run_without_models(run, tmp_path, call):
    folder = tmp_path / "begun"
    folder.mkdir()
    (folder / "config.json").write_text((run / "config.json").read_text())
    code, printed, _ = call("list", tmp_path)
    row, _, last = printed.splitlines()[-3:]
    assert code == 0 and row.split() == [str(folder), "lm", "none", "-", "-"]
    assert last == f"next: thinrnn train --resume {folder}"
    config = json.loads((folder / "config.json").read_text()) | {"format": 1}
    (folder / "config.json").write_text(json.dumps(config))
    code, printed, _ = call("list", tmp_path)
    assert code == 0 and "begun by another version" in printed
    assert printed.splitlines()[-1] == "next: thinrnn demo"


def test_a_model_that_learned_nothing_fails_its_verdict(texts, tmp_path, call):
    files = ("--train", texts / "train.txt", "--valid", texts / "valid.txt")
    wild = options(optimizer="sgd", lr=1e30, clip=0, phases="dense", epochs=1, schedule="decay")
    code, printed, _ = call("train", "lm", *files, "--out", tmp_path / "run", *wild, "--json")
    result = json.loads(printed, parse_constant=pytest.fail)
    assert code == 1 and result["dense"]["valid_perplexity"] is None
    assert "of the dense model is a number" in result["promises"][0]["text"]


def test_a_full_disk_is_named_with_the_command_that_continues(texts, tmp_path, call, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("thinrnn.lab.run.checkpoint.write_synced", full)
    files = ("--train", texts / "train.txt", "--valid", texts / "valid.txt")
    code, _, err = call("train", "lm", *files, "--out", tmp_path / "run", *options())
    assert code == 2 and "the disk is full; free some space" in err
    assert f"'thinrnn train --resume {tmp_path / 'run'}'" in err


def test_compact_names_in_one_line_what_cannot_be_rounded(run, tmp_path, call):
    code, _, err = call("compact", run, "--round-to", 64, "--out", tmp_path / "thin")
    assert code == 0 and err
    for note in err.splitlines():
        assert note.startswith("note: ") and "cannot be rounded up to 64" in note


def test_doctor_prunes_a_tiny_model(call):
    code, printed, _ = call("doctor", "--json")
    result = json.loads(printed)
    assert code == 0 and result["works"] and result["environment"]["torch"]


COMMANDS = ["demo", "data", "train", "eval", "compact", "bench", "report", "list", "doctor"]
COMMANDS += ["generate", "ask", "export", "quantize", "prune"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_json(command, call):
    code, printed, _ = call(command, "--help")
    assert code == 0 and f"Example: thinrnn {command}" in printed and "--json" in printed


def test_help_lists_all_commands(call):
    code, printed, _ = call("--help")
    assert code == 0 and all(command in printed for command in COMMANDS)


def test_a_missing_extra_is_one_line_and_exit_code_2(run, tmp_path, call, monkeypatch):
    monkeypatch.setattr("thinrnn._extras.missing", lambda *modules: list(modules))
    for arguments in (("export", run, "--onnx", tmp_path / "a.onnx"), ("data", "ptb", tmp_path)):
        code, _, err = call(*arguments)
        assert code == 2 and "pip install '.[" in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


EMPTY, BINARY, LATIN = "{bad}/empty.txt", "{bad}/binary.txt", "{bad}/latin.txt"
ONE, BROKEN = "{bad}/one.txt", "{bad}/broken.toml"
GOOD = ("--train", "{bad}/good.txt", "--valid", "{bad}/good.txt")


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory):
    """A folder with files that cannot be used, and one that can."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "empty.txt").touch()
    (folder / "binary.txt").write_bytes(b"text\0and more\n" * 99)
    (folder / "latin.txt").write_bytes("café au lait\n".encode("latin-1") * 99)
    (folder / "one.txt").write_text("the the the " * 99)
    (folder / "broken.toml").write_text("epochs = [3,\n")
    (folder / "good.txt").write_text("the cat sat on the mat\n" * 99)
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "'thinrnn train lm'"),
        (["train", "lm"], "no training text: give --data FILE"),
        (["train", "ml"], "there is no preset 'ml': did you mean 'lm'?"),
        (
            ["train", "lm", "--set", "hiden=3"],
            "there is no setting 'hiden': did you mean 'hidden'?",
        ),
        (["train", "lm", "--train", "no.txt", "--valid", "no.txt"], "no.txt does not exist"),
        (["train", "lm", "--config", "no.toml"], "cannot read 'no.toml': No such file"),
        (["train", "--resume", "nowhere"], "nowhere is not a run folder"),
        (["train", "lm", "--resume", "nowhere"], "--resume takes everything from the run folder"),
        (["train", "lm", "--wrong"], "No such option"),
        (["eval", "nowhere"], "nowhere does not exist"),
        (["eval", "."], "neither a run folder (no config.json) nor a model"),
        (["compact", "nowhere"], "nowhere is not a run folder"),
        (["bench"], "Missing argument"),
        (["bench", "nowhere"], "nowhere does not exist"),
        (["report", "nowhere"], "nowhere is not a run folder"),
        (["generate", "nowhere"], "nowhere does not exist"),
        (["train", "lm", "--train", EMPTY, "--valid", EMPTY], "empty.txt is empty: give a file"),
        (["train", "lm", "--train", BINARY, "--valid", BINARY], "binary.txt is a binary file"),
        (["train", "lm", "--train", LATIN, "--valid", LATIN], "latin.txt is not UTF-8 text"),
        (["train", "lm", "--train", ONE, "--valid", ONE], "has one word only ('the')"),
        (["train", "lm", "--train", "..", "--valid", ".."], "is a folder"),
        (["train", "lm", "--set", "epochs=few"], "epochs is 'few'"),
        (["train", "lm", "--set", "epochs"], "'epochs' is not key=value"),
        (["train", "lm", "--config", BROKEN], "broken.toml is not valid TOML"),
        (["train", "lm", *GOOD, "--out", f"{EMPTY}/run"], "cannot write"),
        (["train", "lm", *GOOD, "--out", EMPTY], "is not an empty folder: choose another"),
        (["compact", "nowhere", "--round-to", "0"], "Invalid value for '--round-to'"),
        (["list", "--settings", "nothing"], "there is no preset 'nothing'"),
        (["wrong"], "No such command"),
        (["train", "lm", "--wrong"], "thinrnn train --help"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments, message, bad_files, tmp_path, call, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, printed, err = call(*(a.format(bad=bad_files) for a in arguments))
    assert code == 2 and message in err
    assert err.count("\n") == 1 and err.startswith("thinrnn: ") and "Traceback" not in printed + err
    assert list(tmp_path.iterdir()) == []


def test_missing_models_and_texts_are_named(run, texts, tmp_path, call):
    assert "there is no kind 'tiny'" in call("eval", run, "--kind", "tiny")[2]
    assert "give --data DIR or --valid FILE" in call("eval", run / "model")[2]
    assert "has neither *valid*.txt nor" in call("eval", run / "model", "--data", tmp_path)[2]
    assert "is in the model's vocabulary" in call("generate", run, "--prompt", "xyzzy")[2]
    files = ("--train", texts / "train.txt", "--valid", texts / "valid.txt")
    code, _, err = call("train", "lm", *files, "--out", run, *options())
    assert code == 2 and "'thinrnn train --resume" in err


def test_a_broken_model_folder_is_named(run, tmp_path, call):
    import shutil

    for name, content in (("recipe.json", "{"), ("vocabulary.json", "[1]"), ("thinrnn.json", "{}")):
        folder = tmp_path / name.partition(".")[0]
        shutil.copytree(run / "model", folder)
        (folder / name).write_text(content)
        code, _, err = call("generate", folder)
        assert code == 2 and err.count("\n") == 1 and str(folder) in err
    folder = tmp_path / "dense"
    shutil.copytree(run / "dense", folder)
    (folder / "model.safetensors").write_bytes(b"torn")
    code, _, err = call("generate", folder)
    assert code == 2 and "does not hold this model" in err
