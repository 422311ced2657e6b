"""A state that the caller gives and gets back has one width in the file: the small one."""

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import thinrnn
from thinrnn import export_onnx

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


class Forecaster(nn.Module):
    """DeepAR as it is used: one step after another, with the state in the caller's hands."""

    def __init__(self, rnn: nn.RNNBase) -> None:
        super().__init__()
        self.rnn, self.head = rnn, nn.Linear(rnn.hidden_size, 2)

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, state = self.rnn(x, state)
        return self.head(y), state


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(6, 20), nn.Linear(20, 2)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h, c = self.cell(x, (h, c))
        return self.head(h), h, c


def small_one(model: nn.Module, example: Any, *, equal: bool = False) -> nn.Module:
    thinrnn.attach_(model, thinrnn.find_groups(model, example))
    for place, gate in enumerate(thinrnn.gates(model).values()):
        gate.log_alpha = torch.linspace(-4 if equal else -4 - place, 4, gate.size)
    return thinrnn.compact(model).eval()


def loop(path: Path, chunks: list[numpy.ndarray]) -> tuple[list[numpy.ndarray], list[int]]:
    """Run chunks through a file, giving back what it returned, and the widths of its states."""
    session = onnxruntime.InferenceSession(path)
    first, *states = session.get_inputs()
    given = [
        numpy.zeros([s if isinstance(s, int) else 1 for s in v.shape], "float32") for v in states
    ]
    found = []
    for chunk in chunks:
        named = dict(zip([v.name for v in states], given, strict=True))
        output, *given = session.run(None, {first.name: chunk, **named})
        found.append(output)
    return found, [v.shape[-1] for v in states]


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_the_state_that_a_file_returns_goes_back_in(kind: Any, zeros: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make = torch.zeros if zeros else torch.randn
    model = Forecaster(kind(6, 20, num_layers=2))
    count = 2 if kind is nn.LSTM else 1
    state = tuple(make(2, 3, 20) for _ in range(count))
    example = (torch.randn(5, 3, 6), state if count == 2 else state[0])
    found = small_one(model, (example[0], torch.randn(2, 3, 20) if count == 1 else state))
    export = export_onnx(found, tmp_path / "f.onnx", example)
    x = torch.randn(6, 1, 6)
    whole = torch.zeros(2, 1, 20)
    with torch.no_grad():
        expected = found(x, (whole, whole) if count == 2 else whole)[0]
    chunks, widths = loop(export.path, [part.numpy() for part in x.split([1, 2, 3])])
    numpy.testing.assert_allclose(numpy.concatenate(chunks), expected, atol=1e-5)
    assert max(widths) < 20


def test_equal_layers_keep_a_stacked_state_and_cells_a_narrow_one(tmp_path: Path) -> None:
    example = (torch.randn(5, 3, 6), torch.zeros(2, 3, 20))
    small = small_one(Forecaster(nn.GRU(6, 20, num_layers=2)), example, equal=True)
    export = export_onnx(small, tmp_path / "gru.onnx", example)
    assert export.inputs["state"] == export.outputs["output.1"]
    assert export.inputs["state"][0] == 2 and export.inputs["state"][2] < 20

    cell = (torch.randn(3, 6), torch.zeros(3, 20), torch.zeros(3, 20))
    export = export_onnx(small_one(Step(), cell), tmp_path / "cell.onnx", cell)
    assert export.inputs["h"] == export.outputs["output.1"] and export.inputs["h"][1] < 20
    assert export.inputs["c"] == export.outputs["output.2"]
