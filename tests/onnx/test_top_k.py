"""The best words of the last step: the same as in the file that gives all logits."""

from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

from thinrnn.errors import FolderError

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

from thinrnn import export_onnx, quantize_onnx, top_k_onnx
from thinrnn.errors import ExportError
from thinrnn.onnx.runtime import OnnxFile


class Words(nn.Module):
    def __init__(self, tied: bool = False, normal: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 16)
        self.head = nn.Linear(16, 50)
        self.normal = normal
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.lstm(self.embedding(tokens))[0])
        return logits.log_softmax(-1) if self.normal else logits


def written(folder: Path, model: nn.Module, name: str = "model.onnx") -> Path:
    torch.manual_seed(0)
    tokens = torch.zeros(3, 2, dtype=torch.long)
    return export_onnx(model, folder / name, tokens, streaming=True).path


@pytest.mark.parametrize("tied", [False, True])
def test_words_logits_and_states_are_those_of_the_whole_file(tmp_path, tied):
    path = written(tmp_path, Words(tied))
    check(path, tmp_path / "best.onnx", close=1e-5)
    # in 8 bits, inputs are scaled over all steps of a call, here over the last one
    path = quantize_onnx(path, tmp_path / "int8.onnx").path
    check(path, tmp_path / "best.int8.onnx", close=0.05)


def check(path: Path, out: Path, close: float) -> None:
    whole, best = OnnxFile(path), OnnxFile(top_k_onnx(path, out, k=4))
    assert best.states == whole.states and tuple(best.outputs["best"].shape) == (1, "batch", 4)
    state, same = whole.first_states(3), best.first_states(3)
    for steps in (5, 1, 1):  # a prompt, then a word at a time
        tokens = numpy.random.default_rng(steps).integers(0, 50, (steps, 3))
        all_, few = whole({"tokens": tokens, **state}), best({"tokens": tokens, **same})
        logits = all_[next(iter(whole.outputs))][-1]
        wanted = numpy.sort(logits, axis=-1)[:, ::-1][:, :4]
        assert numpy.abs(few["best.logits"][0] - wanted).max() < close
        chosen = numpy.take_along_axis(logits, few["best"][0], axis=-1)
        assert numpy.abs(chosen - few["best.logits"][0]).max() < close
        state = {name: all_[f"{name}.next"] for name in state}
        same = {name: few[f"{name}.next"] for name in same}
        assert all(numpy.array_equal(state[name], same[name]) for name in state)


def test_files_that_have_no_such_short_way_are_refused(tmp_path):
    path = written(tmp_path, Words(normal=True))
    with pytest.raises(ExportError, match="not made by a linear layer but by LogSoftmax"):
        top_k_onnx(path, tmp_path / "best.onnx")
    path = written(tmp_path, Words())
    with pytest.raises(ExportError, match="k is 51, but there are 50 words"):
        top_k_onnx(path, tmp_path / "best.onnx", k=51)
    done = top_k_onnx(path, tmp_path / "best.onnx", k=2)
    with pytest.raises(ExportError, match="the first output is \\(1, batch, 2\\)"):
        top_k_onnx(done, tmp_path / "again.onnx")
    with pytest.raises(FolderError, match="cannot read"):
        top_k_onnx(tmp_path / "none.onnx", tmp_path / "again.onnx")
    assert not (tmp_path / "again.onnx").exists()
