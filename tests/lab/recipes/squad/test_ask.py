import gzip
import json

import pytest

from thinrnn.lab.cli.ask import marked
from tools.results.__main__ import main as results_main

TEXT = "Anna owns a red ball.\nBert owns 3.5 apples — really.\n"


@pytest.fixture
def context(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    return file


def test_an_answer_is_a_part_of_the_text(call, finished, context):
    arguments = ("ask", finished.path, "--context", context, "--question", "What does Bert own?")
    code, printed, _ = call(*arguments, "--json")
    found = json.loads(printed)
    assert code == 0 and found["text"] == TEXT[found["start"] : found["end"]] != ""
    assert 0 < found["probability"] <= 1
    code, printed, _ = call(*arguments)
    assert code == 0 and f"[[{found['text']}]]" in printed


def test_a_stored_model_needs_glove(call, finished, data, context):
    model = finished.path / "model"
    arguments = ("ask", model, "--context", context, "--question", "What does Bert own?")
    code, _, err = call(*arguments)
    assert code == 2 and "holds no GloVe vectors: give --glove FILE" in err
    answers = [
        json.loads(call(*arguments, *extra, "--json")[1])["text"]
        for extra in (("--data", data), ("--glove", data / "glove/glove.6d.txt"))
    ]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--question": "  "}, "the question has no words"),
        ({"--context": "blank"}, "the context has no words"),
        ({"--context": "nowhere"}, "nowhere does not exist"),
        ({"--glove": "short"}, "has vectors of 2 numbers, but the model was trained with 6"),
    ],
)
def test_what_cannot_be_answered_is_reported(call, finished, tmp_path, context, change, message):
    (tmp_path / "blank").write_text(" \n")
    (tmp_path / "short").write_text("what 1 2\nown 1 2\n")
    options = {"--context": context, "--question": "What does Bert own?"}
    for name, value in change.items():
        options[name] = value if name == "--question" else tmp_path / value
    code, _, err = call("ask", finished.path, *(x for pair in options.items() for x in pair))
    assert code == 2 and message in err and err.count("\n") == 1


def test_a_long_text_is_shown_around_the_answer():
    text = "x" * 1000 + "answer" + "y" * 1000
    shown = marked(text, 1000, 1006, colours=False)
    assert shown == "..." + "x" * 300 + "[[answer]]" + "y" * 300 + "..."
    assert marked("a b", 2, 3, colours=True) == "a \x1b[7mb\x1b[0m"


def test_eval_prints_em_f1_and_weights(call, finished, data):
    for path in (finished.path, finished.path / "model"):
        code, printed, _ = call("eval", path, "--data", data, "--json")
        found = json.loads(printed)
        assert code == 0
        assert found["em"] == pytest.approx(finished.summary("small")["em"])
        assert found["f1"] == pytest.approx(finished.summary("small")["f1"])
        assert found["weights"] == finished.summary("small")["weights"]
    code, printed, _ = call("eval", finished.path)  # on the data of the run
    assert code == 0 and "f1" in printed
    code, _, err = call("eval", finished.path / "model")
    assert code == 2 and "give --data DIR" in err


def test_eval_names_what_is_wrong_with_the_data(call, finished, make_data, some_stories):
    folder = make_data(some_stories)
    glove = folder / "glove/glove.6d.txt"
    glove.rename(folder / "glove/notes.md")
    code, _, err = call("eval", finished.path / "model", "--data", folder)
    assert code == 2 and "holds no GloVe file" in err
    with gzip.open(folder / "glove/glove.txt.gz", "wt") as file:
        file.write("the 1 2 3\n")
    code, _, err = call("eval", finished.path / "model", "--data", folder)
    assert code == 2 and "no GloVe vectors of 6 numbers (glove.txt.gz 3)" in err


def test_the_other_commands_work_on_a_reading_run(call, data, finished, tmp_path):
    assert call("bench", finished.path, "--seconds", 0, "--batch", 1, "--steps", 4)[0] == 0
    assert call("report", finished.path, "--out", tmp_path / "report.html")[0] == 0
    code, printed, _ = call("list", finished.path.parent)
    assert code == 0 and "squad-paper" in printed
    code, _, err = call("generate", finished.path)
    assert code == 2 and "not of 'squad'" in err
    code, _, err = call("train", "squad-paper", "--out", tmp_path / "run")
    assert code == 2 and "give --data DIR" in err
    code, printed, _ = call("compact", finished.path, "--out", tmp_path / "small", "--json")
    assert code == 0
    assert json.loads(printed)["weights"] == finished.summary("small")["weights"]
    publish = ("publish", finished.path, "--to", tmp_path, "--store", "float16", "--data", data)
    assert results_main([str(argument) for argument in publish]) == 0
    stored = json.loads((tmp_path / "squad/squad-paper.json").read_text())["stored"]
    assert stored["f1"] == pytest.approx(finished.summary("small")["f1"], abs=20)
