"""What a user, another process or a machine does to a run: one line, and nothing is lost."""

import os
import shutil
from contextlib import contextmanager

import pytest
from attack.conftest import TINY, attempt

from thinrnn.lab.recipes.phase import Phase
from thinrnn.lab.run import RunFolder


@pytest.fixture(autouse=True)
def counted(count):
    count("situations", 1)


def train(texts, out, **changes):
    """Train a tiny model in this process."""
    files = [part for n in ("train", "valid") for part in (f"--{n}", texts / f"{n}.txt")]
    settings = [part for k, v in {**TINY, **changes}.items() for part in ("--set", f"{k}={v}")]
    return attempt("train", "lm", *files, "--out", out, *settings)


def files_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def as_nobody():
    """Give up root's right to read everything, if it is root that runs the tests."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def test_a_run_that_another_process_writes_to_stays_as_it_is(good_run):
    before = files_of(good_run)
    with RunFolder(good_run).locked():
        ended = attempt("train", "--resume", good_run, "--set", "lr=0.5")
    assert ended.code == 2 and "another process is writing" in ended.err
    assert files_of(good_run) == before


@pytest.mark.parametrize("step", [3, 8])
def test_a_run_folder_that_vanishes_is_one_line_and_does_not_come_back(
    texts, tmp_path, monkeypatch, step
):
    """Whether the folder goes while a phase trains, or in its last step."""
    out, take_step = tmp_path / "run", Phase.take_step

    def vanishing(self):
        take_step(self)
        if self.step == step:
            shutil.rmtree(out)

    monkeypatch.setattr(Phase, "take_step", vanishing)
    ended = train(texts, out, checkpoint_steps=2, phases="dense", log_every=1)
    assert ended.code == 2 and not ended.faults()
    assert "its folder is gone" in ended.err and f"train --resume {out}" in ended.err
    assert not out.exists()


def test_ctrl_c_before_the_first_step_names_the_command_to_go_on(texts, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("thinrnn.lab.driver.begin_phase", interrupted)
    ended = train(texts, tmp_path / "run", phases="dense")
    assert ended.code == 130
    assert ended.err == f"thinrnn: stopped; go on with 'thinrnn train --resume {tmp_path}/run'\n"
    monkeypatch.undo()
    assert attempt("train", "--resume", tmp_path / "run").code in (0, 1)
    assert (tmp_path / "run/dense.json").exists()


@pytest.mark.parametrize(
    "command", ["eval", "generate", "compact", "report", "bench", "export", "list", "train"]
)
def test_what_may_not_be_read_is_one_line_and_code_2(good_run, tmp_path, command):
    closed = tmp_path / "closed"
    shutil.copytree(good_run, closed)
    before = {"train": ["--resume"]}.get(command, [])
    after = {"export": ["--onnx", tmp_path / "x.onnx"]}.get(command, [])
    closed.chmod(0)
    with as_nobody():
        ended = attempt(command, *before, closed, *after)
    closed.chmod(0o755)
    assert not ended.faults(codes=(2,))


@pytest.mark.parametrize("command", ["compact", "report", "export", "train"])
def test_where_nothing_may_be_written_is_one_line_and_code_2(good_run, texts, tmp_path, command):
    tmp_path.chmod(0o555)
    out = tmp_path / "new" if command != "report" else tmp_path / "report.html"
    with as_nobody():
        if command == "train":
            ended = train(texts, out)
        else:
            ended = attempt(command, good_run, "--onnx" if command == "export" else "--out", out)
    tmp_path.chmod(0o755)
    assert not ended.faults(codes=(2,))
    assert not list(tmp_path.iterdir())


def test_list_names_a_damaged_run_and_shows_the_others(good_run, tmp_path):
    for name in ("a", "b", "c"):
        shutil.copytree(good_run, tmp_path / name)
    (tmp_path / "b/config.json").write_text("{")
    ended = attempt("list", tmp_path)
    assert not ended.faults(codes=(0,))
    assert f"{tmp_path}/a" in ended.out and f"{tmp_path}/c" in ended.out
    assert f"left out {tmp_path}/b: '{tmp_path}/b/config.json' is damaged" in ended.out
