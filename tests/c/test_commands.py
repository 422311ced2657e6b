"""`thinrnn export --to c` writes a file that streams the model's logits."""

import ctypes
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from thinrnn.lab.recipes.language_model.data import Splitting, Vocabulary
from thinrnn.lab.recipes.language_model.load import load_model, save_model
from thinrnn.lab.recipes.language_model.model import LanguageModel

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
WORDS = ("<eos>", "<unk>", *(f"w{place}" for place in range(28)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    arguments = {"vocabulary": len(WORDS), "cell": "lstm", "embedding": 8, "hidden": (8, 9)}
    torch.manual_seed(0)
    save_model(LanguageModel(**arguments), folder, arguments, Vocabulary(WORDS, Splitting()))
    return folder


def test_the_file_streams_logits_and_its_vocabulary_is_beside_it(
    model: Path, tmp_path: Path, call: Any
) -> None:
    file = tmp_path / "out" / "words.c"
    code, printed, err = call("export", model, "--to", "c", "--out", file, "--json")
    assert code == 0, err
    result = json.loads(printed)
    assert result["difference"] < 1e-5 and result["states"]["rnn.1.l0.c"] == 9
    assert json.loads((file.parent / "vocabulary.json").read_text())["tokens"] == list(WORDS)
    library = file.with_suffix(".so")
    subprocess.run(["cc", "-shared", "-fPIC", str(file), "-o", str(library)], check=True)
    state = numpy.zeros(sum(result["states"].values()), numpy.float32)
    tokens = torch.randint(30, (5, 1))
    with torch.no_grad():
        expected = load_model(model).model(tokens)[0][:, 0].numpy()
    for token, wanted in zip(tokens.numpy().astype(numpy.int32), expected, strict=True):
        logits = numpy.zeros(30, numpy.float32)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (state, token, logits)]
        ctypes.CDLL(str(library)).words_step(*pointers)
        numpy.testing.assert_allclose(logits, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "a.c", "--to", "coreml"], "there is no format 'coreml'"),
        (["--out", "a.c", "--streaming"], "always a stream"),
        (["--out", "a.c", "--precision", "int4"], "must be float32 or int8"),
        (["--out", "a.onnx", "--precision", "int8"], "thinrnn quantize"),
    ],
)
def test_wrong_options_are_one_line_and_exit_code_2(
    options: list[str], message: str, model: Path, tmp_path: Path, call: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = call("export", model, *options)
    assert code == 2 and message in err and len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
