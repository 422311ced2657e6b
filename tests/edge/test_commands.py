"""thinrnn export and bench write and time ExecuTorch and LiteRT files."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from thinrnn._extras import missing
from thinrnn.lab.recipes.language_model.data import Splitting, Vocabulary
from thinrnn.lab.recipes.language_model.load import save_model
from thinrnn.lab.recipes.language_model.model import LanguageModel

pytestmark = pytest.mark.extended
PACKAGES = {"executorch": "executorch", "litert": "litert_torch"}

WORDS = ("<eos>", "<unk>", *(f"w{place}" for place in range(28)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    arguments = {"vocabulary": len(WORDS), "cell": "lstm", "embedding": 8, "hidden": (8, 9)}
    torch.manual_seed(0)
    save_model(LanguageModel(**arguments), folder, arguments, Vocabulary(WORDS, Splitting()))
    return folder


@pytest.mark.parametrize("runtime", PACKAGES)
def test_a_language_model_is_exported_and_timed(
    runtime: str, model: Path, tmp_path: Path, call: Any
) -> None:
    if missing(PACKAGES[runtime]):
        pytest.skip(f"{PACKAGES[runtime]} not installed: pip install '.[{runtime}]'")
    file = tmp_path / f"words{'.pte' if runtime == 'executorch' else '.tflite'}"
    code, printed, _ = call("export", model, "--out", file, "--json")
    assert code == 0 and json.loads(printed)["difference"] < 1e-4
    assert file.exists() and (tmp_path / "vocabulary.json").exists()
    options = ["--runtimes", f"eager,{runtime}", "--shape", "1x1", "--seconds", "0", "--json"]
    code, printed, _ = call("bench", model, *options)
    found = json.loads(printed)
    assert code == 0 and {case["runtime"] for case in found["cases"]} == {"eager", runtime}


def test_missing_packages_end_in_one_line(model: Path, tmp_path: Path, call: Any) -> None:
    if not missing("litert_torch"):
        pytest.skip("installed")
    code, _, err = call("export", model, "--out", tmp_path / "a.tflite")
    assert code == 2 and "[litert]" in err and len(err.strip().splitlines()) == 1
