"""A run needs one text file and nothing else."""

import json

import pytest

from thinrnn.lab.recipes.language_model.corpus import load_text, texts_in
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.run import InputError


def test_a_file_is_a_text_for_everything(tmp_path):
    file = tmp_path / "book.txt"
    file.write_text("".join(f"chapter {i} has words\n" for i in range(400)))
    assert texts_in(file) == {"train": str(file)}
    text = load_text(LanguageModelSettings(**texts_in(file)))
    assert len(text.valid) > 50 and text.test is not None and len(text.train) > 1000


def test_a_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no\.txt does not exist: give a text file"):
        texts_in(tmp_path / "no.txt")


@pytest.mark.extended
def test_the_command_learns_from_a_file_and_says_what_it_chose(tmp_path, call):
    file, run = tmp_path / "book.txt", tmp_path / "run"
    lines = (f"the {i % 7} cats of house {i % 13} sat on mat {i % 5}\n" for i in range(3000))
    file.write_text("".join(lines))
    fixed = [
        "device=cpu",
        "threads=1",
        "tensorboard=no",
        "bench_seconds=0",
        "epochs=2",
        "hidden=16",
    ]
    sets = [part for value in fixed for part in ("--set", value)]
    code, printed, _ = call("train", "lm", "--data", file, "--minutes", "0.5", "--out", run, *sets)
    config = json.loads((run / "config.json").read_text())
    assert code == 0 and "chosen" in printed and "because" in printed
    chosen = {choice["name"]: choice["value"] for choice in config["chosen"]}
    assert config["settings"]["lr"] == chosen["lr"] and "hidden" not in chosen
    unigram = config["text"]["unigram_perplexity"]
    for kind in ("dense", "small", "control"):
        summary = json.loads((run / f"{kind}.json").read_text())
        assert summary["valid_perplexity"] < 0.5 * unigram, kind


def test_presets_with_fixed_settings_have_no_time(tmp_path, call):
    code, _, err = call("train", "demo", "--minutes", "3", "--out", tmp_path / "run")
    assert code == 2 and "--minutes is for lm and char" in err
