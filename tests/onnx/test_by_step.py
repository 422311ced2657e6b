"""Wide layers side by side in 8 bits: computed step by step, with the same logits as at once."""

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from thinrnn import export_onnx, quantize_onnx, top_k_onnx
from thinrnn.onnx._passes.by_step import WIDE
from thinrnn.onnx.runtime import OnnxFile

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

FREQUENT = 1000


class Words(nn.Module):
    """Frequent words have long vectors, the others short ones."""

    def __init__(self, words: int, *, normal: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 12)
        self.frequent = nn.Linear(12, FREQUENT)
        self.narrow = nn.Linear(12, 8, bias=False)
        self.rare = nn.Linear(8, words - FREQUENT)
        self.normal = normal

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.lstm(self.embedding(tokens))[0]
        logits = torch.cat([self.frequent(h), self.rare(self.narrow(h))], -1)
        return logits.log_softmax(-1) if self.normal else logits


def files(model: nn.Module, folder: Path, *, per_row: bool = False) -> tuple[Path, Path]:
    tokens = torch.zeros(3, 2, dtype=torch.long)
    path = export_onnx(model, folder / "model.onnx", tokens, streaming=True).path
    return path, quantize_onnx(path, folder / "int8.onnx", per_row=per_row).path


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def logits(path: Path, tokens: Any) -> Any:
    file = OnnxFile(path)
    return file({"tokens": tokens, **file.first_states(tokens.shape[1])})["output"]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    torch.manual_seed(0)
    return files(Words(WIDE), tmp_path_factory.mktemp("wide"))


@pytest.mark.parametrize("per_row", [False, True])
def test_logits_stay_close_and_are_those_of_a_stream(wide, per_row, tmp_path):
    exact, path = wide
    if per_row:
        path = quantize_onnx(exact, tmp_path / "int8.onnx", per_row=True).path
    assert operators(path).count("Scan") == 1 and "Concat" not in operators(path)
    file = OnnxFile(path)
    for shape in ((1, 1), (7, 3), (2, 20)):
        tokens = numpy.random.default_rng(0).integers(0, 50, shape)
        found, wanted = logits(path, tokens), logits(exact, tokens)
        assert found.shape == (*shape, WIDE)
        for words in (slice(0, FREQUENT), slice(FREQUENT, WIDE)):
            assert numpy.abs(found - wanted)[..., words].max() < 0.03
        streamed = file.stream({"tokens": tokens}, {"tokens": 0}, [1] * shape[0], shape[1])
        assert numpy.abs(streamed["output"] - found).max() < 0.03


def test_few_words_and_what_follows_the_logits_are_computed_at_once(tmp_path):
    for name, model in (("few", Words(WIDE - 1)), ("on", Words(WIDE, normal=True))):
        (tmp_path / name).mkdir()
        _, path = files(model, tmp_path / name)
        assert operators(path).count("Concat") == 1 and "Scan" not in operators(path)


def test_the_best_words_are_those_of_all_logits(wide, tmp_path):
    _, path = wide
    best = OnnxFile(top_k_onnx(path, tmp_path / "best.onnx", k=5))
    assert "Scan" not in operators(tmp_path / "best.onnx")
    tokens = numpy.random.default_rng(1).integers(0, 50, (6, 4))
    found = best({"tokens": tokens, **best.first_states(4)})
    last = logits(path, tokens)[-1]
    largest = numpy.sort(last, -1)[:, ::-1][:, :5]
    assert numpy.abs(found["best.logits"][0] - largest).max() < 0.03
    chosen = numpy.take_along_axis(last, found["best"][0], -1)
    assert numpy.abs(chosen - found["best.logits"][0]).max() < 0.03
