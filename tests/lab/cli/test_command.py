"""The commands that messages name run as they stand."""

import sys
from pathlib import Path

import pytest

from thinrnn.lab.command import command


def make_program(folder: Path) -> Path:
    program = folder / "thinrnn"
    folder.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def test_a_program_that_is_not_on_the_path_is_named_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make_program(tmp_path / "project/.venv/bin")
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("PATH", "")
    assert command("list") == ".venv/bin/thinrnn list"
    make_program(tmp_path / "other")  # another one of that name does not count
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    assert command("list") == ".venv/bin/thinrnn list"
    monkeypatch.chdir(tmp_path / "other")
    assert command("list") == f"{program} list"


def test_a_program_on_the_path_is_named_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make_program(tmp_path / "bin")
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setenv("PATH", str(program.parent))
    assert command("report", "my runs/lm") == "thinrnn report 'my runs/lm'"
