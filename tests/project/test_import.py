"""What `import thinrnn` brings, and when."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

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
    assert dir(thinrnn) == sorted(thinrnn.__all__)
    assert not hasattr(thinrnn, "grow")


def test_type_checkers_see_the_names_that_are_there() -> None:
    stub = ast.parse(Path(thinrnn.__file__).with_suffix(".pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname: (node.module, alias.name) for node in imports for alias in node.names}
    assert seen.keys() == set(thinrnn.__all__) - {"__version__"}
    for name, (module, source) in seen.items():
        assert getattr(importlib.import_module(module), source) is getattr(thinrnn, name)


def test_no_command_at_all_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([])
    printed = capsys.readouterr()
    assert left.value.code == 2 and "Usage: thinrnn" in printed.out
    assert printed.err == ""
