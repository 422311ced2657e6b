"""What `import thinrnn` brings, and when."""

import subprocess
import sys

import pytest

import thinrnn
from thinrnn.lab.cli import main

HELP = """
import sys
from thinrnn.lab.cli import main
try:
    main(sys.argv[1:])
except SystemExit as left:
    heavy = sorted({"torch", "numpy", "safetensors", "matplotlib"} & sys.modules.keys())
    sys.exit(left.code or ",".join(heavy) or 0)
"""


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["--version"], ["list"]])
def test_what_only_prints_does_not_wait_for_torch(arguments: list[str]) -> None:
    ran = subprocess.run([sys.executable, "-c", HELP, *arguments], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_all_names_are_there_and_others_are_not() -> None:
    assert dir(thinrnn) == sorted(thinrnn.__all__)
    assert all(getattr(thinrnn, name) is not None for name in thinrnn.__all__)
    assert not hasattr(thinrnn, "prune")


def test_no_command_at_all_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([])
    said = capsys.readouterr()
    assert left.value.code == 2 and "Usage: thinrnn" in said.out
    assert said.err == ""
