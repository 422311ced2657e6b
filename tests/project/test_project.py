"""The package as a whole: its public names, its imports, its files."""

import doctest
import inspect
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import thinrnn
from thinrnn import __version__

ROOT = Path(__file__).parents[2]

CONTRACT = {
    "GroupLasso",
    "HardConcrete",
    "L0",
    "Plan",
    "RHN",
    "RNNStack",
    "Target",
    "attach_",
    "compact",
    "count",
    "cut_",
    "detach_",
    "find_groups",
    "gates",
    "kept_neurons",
    "kept_inputs",
    "load_",
    "magnitude_",
    "param_groups",
    "save",
    "shrink_",
    "verify",
}

# Written in pieces, so that this file does not contain what it looks for.
FORBIDDEN = {
    "registry host": "|".join(
        re.escape(".".join(parts))
        for parts in [
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("download", "pytorch", "org"),
            ("npmjs", "org"),
            ("deb", "debian", "org"),
        ]
    ),
    "local path": r"(?<![\w.~*$}])/(?:" + "|".join(["home", "root", "Users", "work"]) + r")/\w",
    "temporary path": r"(?<![\w.~*$}])/" + r"tmp/\w",
}


def tracked_files() -> list[Path]:
    """The text files under version control."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs git and a checkout")
    # A checkout may belong to another user, which git refuses unless told otherwise.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [ROOT / name for name in names.split("\0") if name]
    return [file for file in files if file.is_file() and b"\0" not in file.read_bytes()]


def test_installed_version_is_the_one_in_the_source() -> None:
    try:
        installed = metadata.version("thinrnn")
    except metadata.PackageNotFoundError:
        pytest.skip("runs from the source folder, not installed")
    assert installed == __version__


def test_changelog_has_the_current_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert __version__ in headings


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_names_a_machine(what: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for file in tracked_files()
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), start=1)
        if re.search(FORBIDDEN[what], line)
    ]
    assert not found, "\n".join(found)


def test_every_name_of_the_contract_is_public() -> None:
    assert set(thinrnn.__all__) >= CONTRACT
    assert len(thinrnn.__all__) == len(set(thinrnn.__all__))


@pytest.mark.parametrize("name", sorted(set(thinrnn.__all__) - {"__version__"}))
def test_docstring_of_a_public_name_teaches(name: str) -> None:
    """`help` is enough to use a name: arguments, result, and an example that test_doctest runs."""
    thing = getattr(thinrnn, name)
    text = inspect.getdoc(thing) or ""
    if inspect.isclass(thing) and issubclass(thing, thinrnn.ThinRNNError):
        assert text != inspect.getdoc(Exception)
        return
    assert doctest.DocTestParser().get_examples(text), f"thinrnn.{name} has no example"
    if inspect.isfunction(thing):
        signature = inspect.signature(thing)
        missing = [p for p in signature.parameters if not re.search(rf"^ *\*?{p}: ", text, re.M)]
        assert not missing, f"thinrnn.{name} does not describe {missing}"
        assert signature.return_annotation is None or "Returns:" in text


def test_no_two_classes_have_the_same_name() -> None:
    """Apart from callbacks, which do the same in different trainers."""
    files = {*(ROOT / "src").rglob("*.py")} - {*(ROOT / "src/thinrnn/integrations").iterdir()}
    names = [n for f in files for n in re.findall(r"^class (\w+)", f.read_text(), re.MULTILINE)]
    assert sorted(names) == sorted(set(names))


def test_import_loads_nothing_that_is_optional() -> None:
    heavy = ["typer", "rich", "matplotlib", "onnx", "onnxruntime", "onnxscript", "accelerate"]
    program = f"import sys, thinrnn; print(*[m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []
