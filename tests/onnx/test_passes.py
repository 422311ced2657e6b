"""Passes over a graph: the last one is idempotent, and their order does not matter."""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy
import pytest
import torch
from torch import nn

import thinrnn
from thinrnn import export_onnx, quantize_onnx, top_k_onnx
from thinrnn.onnx._passes import by_step
from thinrnn.onnx.runtime import OnnxFile

for package in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(package)


class Words(nn.Module):
    """A language model with the parts that passes rewrite: wide layers, biases, side by side."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(60, 12)
        self.rnn = thinrnn.RHN(12, 12, depth=2) if kind == "highway" else nn.LSTM(12, 12)
        self.frequent, self.rare = nn.Linear(12, 60), nn.Linear(12, 80)
        self.kind = kind
        if kind == "tied":
            self.frequent.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.rnn(self.embedding(tokens))[0]
        if self.kind == "two":
            return torch.cat([self.frequent(h), self.rare(h)], -1)
        return self.frequent(h)


@pytest.fixture(scope="module", params=["two", "tied", "highway"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp(request.param) / "model.onnx"
    tokens = torch.zeros(3, 2, dtype=torch.long)
    return export_onnx(Words(request.param), path, tokens, streaming=True).path


@pytest.fixture(autouse=True)
def few_words_are_many() -> Iterator[None]:
    """Files are written as those of large models are."""
    with patch.object(by_step, "WIDE", 100):
        yield


@pytest.mark.parametrize("per_row", [False, True])
def test_order_does_not_matter(exported: Path, per_row: bool, tmp_path: Path) -> None:
    int8 = quantize_onnx(exported, tmp_path / "int8.onnx", per_row=per_row).path
    top = top_k_onnx(exported, tmp_path / "top.onnx", k=4)
    one = OnnxFile(top_k_onnx(int8, tmp_path / "int8.top.onnx", k=4))
    other = OnnxFile(quantize_onnx(top, tmp_path / "top.int8.onnx", per_row=per_row).path)
    tokens = numpy.random.default_rng(0).integers(0, 60, (5, 3))
    values = {"tokens": tokens, **one.first_states(3)}
    found, same = one(values), other(values)
    assert list(found) == list(same) and "best" in found
    for name, value in found.items():
        numpy.testing.assert_array_equal(value, same[name])


def test_names_in_loops_are_not_those_outside(exported: Path, tmp_path: Path) -> None:
    from thinrnn.onnx.files import read_model

    for file in (exported, quantize_onnx(exported, tmp_path / "int8.onnx", per_row=True).path):
        nodes = read_model(file).graph.all_nodes()
        names = [value.name for node in nodes for value in node.outputs if value.name]
        assert len(names) == len(set(names))


def test_written_again_a_file_stays_the_same(exported: Path, tmp_path: Path) -> None:
    from thinrnn.onnx.files import finished, read_model, write_model

    files = [exported, quantize_onnx(exported, tmp_path / "int8.onnx").path]
    files += [top_k_onnx(file, tmp_path / f"{file.stem}.top.onnx", k=4) for file in files]
    for file in files:
        write_model(finished(read_model(file)), tmp_path / "again.onnx", OnnxFile)
        assert (tmp_path / "again.onnx").read_bytes() == file.read_bytes()
    again = quantize_onnx(exported, tmp_path / "int8.again.onnx").path
    assert again.read_bytes() == files[1].read_bytes()
