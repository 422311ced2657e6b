"""thinrnn sweep of the reader: exact matches are what trials are compared by; more is better."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("optuna", reason="needs the extra sweep")

import optuna

from thinrnn.lab.cli import main
from thinrnn.lab.run import RunFolder

SPACE = "[lr]\nlow = 0.001\nhigh = 0.02\n"


@pytest.fixture
def arguments(data, tiny, tmp_path):
    """The command, without its name."""
    (tmp_path / "space.toml").write_text(SPACE)
    varied = ("data", "lr")
    settings = {k: v for k, v in tiny().model_dump(exclude_defaults=True).items()}
    sets = []
    for name, value in settings.items():
        if name not in varied:
            text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            sets += ["--set", f"{name}={text}"]
    place = ["--data", str(data), "--space", str(tmp_path / "space.toml")]
    return ["sweep", "squad-paper", *place, *sets, "--out", str(tmp_path / "sweep")]


@pytest.mark.extended
def test_more_exact_matches_are_better(arguments, tmp_path):
    more = ["--trials", "2", "--metric", "em", "--json"]
    command = [sys.executable, "-m", "thinrnn.lab.cli", *arguments, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    trials = json.loads(done.stdout)["trials"]
    assert [trial["end"] for trial in trials] == ["finished"] * 2
    for trial in trials:
        summary = RunFolder(tmp_path / "sweep" / "trials" / trial["run"]).summary("small")
        assert trial["em"] == summary["em"] and trial["params"] == summary["params"]
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "sweep" / "study.journal"))
    study = optuna.load_study(study_name="sweep", storage=optuna.storages.JournalStorage(backend))
    assert [direction.name for direction in study.directions] == ["MAXIMIZE", "MINIMIZE"]
    points = [(-trial["em"], trial["params"]) for trial in trials]
    beaten = [any(a <= c and b <= d and (a, b) != (c, d) for a, b in points) for c, d in points]
    assert [trial["is_best"] for trial in trials] == [not one for one in beaten]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--cost", "onnx_milliseconds"], "--cost milliseconds"),
        (["--metric", "perplexity"], "choose one of f1, em"),
    ],
)
def test_what_a_reader_is_not_measured_by(arguments, more, reason, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*arguments, *more])
    said = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 2 and len(said) == 1 and reason in said[0]
