"""What cannot be exported is refused with the reason, and leaves no file."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thinrnn
from thinrnn import export_onnx
from thinrnn.errors import ExampleError, ExportError, GateError, MissingExtraError

for package in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(package)

X = torch.randn(5, 2, 4)


class Loop(nn.Module):
    """A loop over the steps, in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 3)

    def forward(self, x: Any) -> Any:
        h = c = x.new_zeros(x.size(1), 3)
        outputs = []
        for step in x:
            h, c = self.cell(step, (h, c))
            outputs.append(h)
        return torch.stack(outputs)


def test_a_graph_that_onnxscript_cannot_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx_ir.passes import PassError
    from onnxscript import optimizer

    def fail(*_: Any, **__: Any) -> None:
        raise PassError("a pass failed") from AttributeError("'NoneType' has no 'ndim'")

    monkeypatch.setattr(optimizer, "optimize_ir", fail)
    with pytest.raises(ExportError, match=r"'NoneType' has no 'ndim'.* export a model of one step"):
        export_onnx(nn.GRU(4, 3), tmp_path / "m.onnx", X)
    assert not list(tmp_path.iterdir())


class LooksAhead(nn.Module):
    """Something besides the recurrent layer looks across time."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 3)

    def forward(self, x: Any) -> Any:
        return self.gru(x - x.mean(0, keepdim=True))[0]


class ChoosesInPython(nn.Module):
    """It does something else for long inputs, which a graph of one call does not show."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 3)

    def forward(self, x: Any) -> Any:
        return self.gru(2 * x if x.shape[0] > 7 else x)[0]


@pytest.mark.parametrize(
    ("model", "streaming", "words"),
    [
        (Loop(), False, "a Python loop over the steps"),
        (LooksAhead(), True, "looks across time"),
        (nn.GRU(4, 3, bidirectional=True), True, "from the end"),
        (Loop(), True, "calls no nn.LSTM"),
        (ChoosesInPython(), False, "depends on sizes"),
    ],
    ids=["loop", "looks ahead", "bidirectional", "cells", "chooses in Python"],
)
def test_refused_with_the_reason(
    model: nn.Module, streaming: bool, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.onnx"
    path.write_text("what was there before")
    with pytest.raises(ExportError, match=words):
        export_onnx(model, path, X, streaming=streaming)
    assert path.read_text() == "what was there before"
    assert [file.name for file in tmp_path.iterdir()] == ["a.onnx"]


def test_streaming_needs_an_example_without_state(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="leave the state out"):
        export_onnx(nn.GRU(4, 3), tmp_path / "a.onnx", (X, torch.ones(1, 2, 3)), streaming=True)


def test_gates_are_refused(tmp_path: Path) -> None:
    model = nn.Sequential(nn.GRU(4, 3))
    thinrnn.attach_(model, thinrnn.find_groups(model, X))
    with pytest.raises(GateError, match="compact"):
        export_onnx(model, tmp_path / "a.onnx", X)


def test_wrong_example_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExampleError, match="does not run"):
        export_onnx(nn.GRU(4, 3), tmp_path / "a.onnx", torch.randn(5, 2, 9))


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str) -> None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", find_spec)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[onnx\]'"):
        export_onnx(nn.GRU(4, 3), tmp_path / "a.onnx", X)


def test_unwritable_path_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="cannot write"):
        export_onnx(nn.GRU(4, 3), tmp_path / "file" / "a.onnx", X)


class ReadsImages(nn.Module):
    """Columns of an image as steps; the height is averaged away, whatever it is."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool = nn.Conv2d(1, 6, 3, padding=1), nn.AdaptiveAvgPool2d((None, 1))
        self.rnn = nn.LSTM(6, 5, bidirectional=True, batch_first=True)

    def forward(self, image: Tensor) -> Tensor:
        columns = self.pool(self.conv(image).permute(0, 3, 1, 2)).squeeze(3)
        return self.rnn(columns)[0]


def test_a_size_that_the_tracer_mistakes_is_fixed(tmp_path: Path) -> None:
    export = export_onnx(ReadsImages(), tmp_path / "a.onnx", torch.randn(2, 1, 8, 11))
    assert export.inputs["image"][:3] == ("batch", 1, 8)
    assert isinstance(export.inputs["image"][3], str)


def test_outputs_of_other_dimensions_are_named_before_tracing(tmp_path: Path) -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.rnn(x)[0][-1].squeeze()

    with pytest.raises(ExportError, match=r"'output' has 2 dimensions, .*batch 1.*squeeze\(dim\)"):
        export_onnx(Last(), tmp_path / "a.onnx", torch.randn(5, 2, 4))
