import errno
import json
from pathlib import Path

import pytest

from thinrnn.errors import RunError
from thinrnn.lab.run import InputError, RunFolder
from thinrnn.lab.run.folder import find_runs, free_name, is_running

CONFIG = {"recipe": "language_model", "settings": {}}


def test_a_folder_that_holds_a_run_is_not_written_over(tmp_path):
    RunFolder.create(tmp_path / "a", CONFIG)
    with pytest.raises(InputError, match=r"holds a run already.*--resume.*a'"):
        RunFolder.create(tmp_path / "a", CONFIG)


def test_a_folder_with_other_files_is_not_touched(tmp_path):
    (tmp_path / "thesis.txt").write_text("three years")
    with pytest.raises(InputError, match="not an empty folder"):
        RunFolder.create(tmp_path, CONFIG)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_run_can_begin_where_a_process_died_before_there_was_one(tmp_path):
    (tmp_path / ".config.json.a1b2c3d4").write_text('{"reci')
    RunFolder.create(tmp_path, CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "has no config.json"),
        ("{", "not JSON"),
        ("[]", "the file: .*an object"),
        ('{"settings": 1}', "recipe: field required"),
    ],
)
def test_what_is_not_a_run_is_reported_in_one_line(tmp_path, content, message):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunError, match=message) as caught:
        RunFolder(tmp_path)
    assert "\n" not in str(caught.value)


def test_summaries_are_there_once_they_are_written(tmp_path):
    run = RunFolder.create(tmp_path, CONFIG)
    assert run.summaries() == {}
    run.write_summary("small", {"params": 3})
    assert run.summaries() == {"small": {"kind": "small", "params": 3}}
    assert json.loads((tmp_path / "small.json").read_text())["kind"] == "small"


def test_two_processes_cannot_write_to_one_run(tmp_path):
    run = RunFolder.create(tmp_path, CONFIG)
    with (
        run.locked(),
        pytest.raises(InputError, match="another process is writing"),
        RunFolder(tmp_path).locked(),
    ):
        pass
    with RunFolder(tmp_path).locked():
        pass


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write .*file/run: Not a directory"):
        RunFolder.create(tmp_path / "file/run", CONFIG)


def test_a_read_only_folder_is_reported_before_anything_happens(tmp_path, monkeypatch):
    run = RunFolder.create(tmp_path, CONFIG)
    real = Path.open

    def read_only(path, mode="r", *more):
        if "w" in mode:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, mode, *more)

    monkeypatch.setattr(Path, "open", read_only)
    with pytest.raises(InputError, match=r"read-only; choose another folder.*"), run.locked():
        pass


def test_a_run_is_running_while_its_lock_is_held(tmp_path):
    run = RunFolder.create(tmp_path, CONFIG)
    assert is_running(tmp_path)  # there is no lock yet: it cannot be told
    with run.locked():
        assert is_running(tmp_path)
    assert not is_running(tmp_path)


def test_free_names_and_runs_that_are_there(tmp_path):
    assert free_name(tmp_path / "demo") == tmp_path / "demo"
    RunFolder.create(tmp_path / "demo", CONFIG)
    assert free_name(tmp_path / "demo") == tmp_path / "demo-2"
    (tmp_path / "other").mkdir()
    assert find_runs(tmp_path) == [tmp_path / "demo"]
    assert find_runs(tmp_path / "missing") == []
