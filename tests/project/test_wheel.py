"""The wheel, installed without extras into empty environments."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended
ROOT = Path(__file__).parents[2]

WITHOUT_TORCH = """
import sys, thinrnn
assert "Target" in dir(thinrnn) and "torch" not in sys.modules
from thinrnn.lab.cli import main
for arguments in (["--version"], ["--help"], ["train", "--help"], ["list"]):
    try:
        main(arguments)
    except SystemExit as left:
        assert not left.code, (arguments, left.code)
assert "torch" not in sys.modules
"""
WITH_TORCH = """
import torch, thinrnn
class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 8, num_layers=2)
        self.head = torch.nn.Linear(8, 3)
    def forward(self, x):
        return self.head(self.lstm(x)[0])
model, x = Tagger(), torch.randn(5, 2, 4)
thinrnn.attach_(model, thinrnn.find_groups(model, x))
for gate in thinrnn.gates(model).values():
    gate.log_alpha.data[1:] = -9.0
small = thinrnn.compact(model)
thinrnn.verify(model, small, x)
assert thinrnn.count(small, x).params < thinrnn.count(Tagger(), x).params
try:
    thinrnn.export_onnx(small, "small.onnx", x)
except thinrnn.errors.ThinRNNError as error:
    assert "onnx" in str(error)
else:
    raise AssertionError("exported without the extra")
"""


def other_pythons() -> list[Path]:
    """The oldest and the newest Python at hand that the project supports, by version."""
    found: dict[int, Path] = {}
    for folder in [*Path.home().glob(".pyenv/versions/*/bin"), Path("/usr/bin")]:
        for python in folder.glob("python3.*"):
            name = re.fullmatch(r"python3\.(\d+)", python.name)
            if name and int(name[1]) >= 11:
                found.setdefault(int(name[1]), python)
    for minor in range(11, 20):
        if on_path := shutil.which(f"python3.{minor}"):
            found.setdefault(minor, Path(on_path))
    chosen = {minor: found[minor] for minor in {min(found), max(found)}} if found else {}
    return list(chosen.values())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source tree."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


def environment(python: str | Path, folder: Path) -> Path:
    """An empty environment's Python."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"


def install(python: Path, *what: str | Path) -> None:
    pip = [python, "-m", "pip", "install", "-qq", "-c", ROOT / "constraints.txt"]
    subprocess.run([*pip, *what], check=True)


def test_wheel_works_without_extras(wheel: Path, tmp_path: Path) -> None:
    python = environment(sys.executable, tmp_path / "env")
    install(python, wheel)
    subprocess.run([python, "-c", WITHOUT_TORCH], check=True, cwd=tmp_path)
    subprocess.run([python, "-c", WITH_TORCH], check=True, cwd=tmp_path)


@pytest.mark.parametrize("python", other_pythons(), ids=lambda path: path.name)
def test_tool_answers_without_torch_on_other_pythons(
    wheel: Path, tmp_path: Path, python: Path
) -> None:
    env = environment(python, tmp_path / "env")
    install(env, "typer", "rich", "pydantic")
    install(env, "--no-deps", wheel)
    subprocess.run([env, "-c", WITHOUT_TORCH], check=True, cwd=tmp_path)
