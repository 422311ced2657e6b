"""The program that needs no torch says what the model in torch says."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from thinrnn.lab.recipes.language_model.data import Splitting, Vocabulary
from thinrnn.lab.recipes.language_model.export import export_model
from thinrnn.lab.recipes.language_model.generate import continue_text
from thinrnn.lab.recipes.language_model.load import load_model, save_model
from thinrnn.lab.recipes.language_model.model import LanguageModel

for package in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(package)

pytestmark = pytest.mark.extended

PROGRAM = Path(__file__).parents[2] / "examples" / "onnx" / "generate.py"
RUN = """
import runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0])
assert "torch" not in sys.modules and "thinrnn" not in sys.modules
"""


@pytest.mark.parametrize(
    "splitting", [Splitting(lower=True, punctuation=True), Splitting(level="char")], ids=str
)
def test_program_continues_as_the_model_does(splitting: Splitting, tmp_path: Path) -> None:
    torch.manual_seed(0)
    words = ("<unk>", "<eos>", *"abcdefghij", " ")
    arguments = {"vocabulary": len(words), "embedding": 9, "hidden": (16, 16)}
    model = LanguageModel(**arguments, init_range=2.0)  # type: ignore[arg-type]
    save_model(model, tmp_path / "model", arguments, Vocabulary(words, splitting))
    export_model(tmp_path / "model", tmp_path / "model.onnx", streaming=True)

    loaded = load_model(tmp_path / "model")
    expected = continue_text(loaded, "a b c", tokens=40, temperature=0)
    command = [sys.executable, "-c", RUN, PROGRAM, tmp_path / "model.onnx"]
    for temperature, same in (("0", True), ("0.8", False)):
        done = subprocess.run(
            [*command, "a b c", temperature], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        found, wanted = (text.split() for text in (done.stdout, expected))
        assert len(found) > 1 and (found == wanted) == same
