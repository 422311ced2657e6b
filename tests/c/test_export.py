"""C files do what their models do, step by step, compiled with all warnings as errors."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import thinrnn
from thinrnn import CExport, RNNStack, export_c
from thinrnn.errors import ExportError, GateError, MissingExtraError
from thinrnn.nn.rhn import RHN

GCC = shutil.which("gcc") or "gcc"
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


class Net(nn.Module):
    """A recurrent network between what usually surrounds one."""

    def __init__(self, rnn: nn.Module, inputs: int, outputs: int, *, last: bool = False) -> None:
        super().__init__()
        self.norm, self.rnn = nn.LayerNorm(inputs), rnn
        self.head = nn.Sequential(nn.Linear(outputs, 7), nn.ReLU(), nn.Dropout(), nn.Linear(7, 3))
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        y = self.rnn(self.norm(x))[0]
        return torch.softmax(self.head(y[-1] if self.last else y), -1)


def unequal(kind: type[nn.RNNBase]) -> RNNStack:
    cells = {"l0": kind(5, 6), "l1": kind(6, 4)}
    return RNNStack(cells, batch_first=False, dropout=0.3)


LAYERS = {
    "lstm": lambda: (nn.LSTM(5, 6, num_layers=2), 6),
    "lstm without biases": lambda: (nn.LSTM(5, 6, bias=False), 6),
    "projected": lambda: (nn.LSTM(5, 8, proj_size=3, num_layers=2), 3),
    "gru": lambda: (nn.GRU(5, 9), 9),
    "gru without biases": lambda: (nn.GRU(5, 6, bias=False), 6),
    "tanh": lambda: (nn.RNN(5, 6), 6),
    "relu": lambda: (nn.RNN(5, 6, nonlinearity="relu"), 6),
    "unequal lstm": lambda: (unequal(nn.LSTM), 4),
    "unequal gru": lambda: (unequal(nn.GRU), 4),
    "rhn": lambda: (RHN(5, 6, depth=3), 6),
}


class Window(nn.Module):
    """A step of a voice detector: convolutions over the frames of a window, then a cell."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(5, 6, 3, padding=1)
        self.second = nn.Conv1d(6, 4, 3, stride=2, dilation=2, bias=False)
        self.cell, self.last = nn.LSTMCell(4, 3), nn.Conv1d(3, 1, 1)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        h, c = self.cell(x.flatten(1), (h, c))
        return torch.sigmoid(self.last(h.unsqueeze(-1))).flatten(1), h, c


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_convolutions_within_a_step(precision: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    example = (torch.randn(1, 5, 6), torch.randn(1, 3), torch.randn(1, 3))
    export = export_c(Window(), tmp_path / "window.c", example, precision=precision)
    assert export.difference < 1e-5
    assert export.inputs == {"x": 30, "h": 3, "c": 3}
    grouped = nn.Conv1d(4, 4, 3, groups=2)
    with pytest.raises(ExportError, match="convolves in groups"):
        export_c(grouped, tmp_path / "a.c", torch.randn(1, 4, 6))


def compiled(export: CExport, *options: str) -> Any:
    """Return the file as a library, compiled as strictly as C99 allows."""
    library = export.path.with_suffix(".so")
    strict = ["-O3", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", *options]
    shared = ["-shared", "-fPIC", "-o", str(library), "-lm"]
    subprocess.run([GCC, *strict, str(export.path), *shared], check=True)
    return ctypes.CDLL(str(library))


def stream(export: CExport, rows: numpy.ndarray) -> numpy.ndarray:
    """Return the outputs (T, n) of a file with one input and one output, from zeros."""
    loaded = compiled(export)
    (size,) = export.outputs.values()
    state = numpy.ones(max(1, sum(export.states.values())), numpy.float32)
    found = numpy.zeros((len(rows), size), numpy.float32)
    at = [ctypes.c_void_p(array.ctypes.data) for array in (state,)]
    loaded[f"{export.name}_reset"](*at)
    for row, out in zip(rows, found, strict=True):
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (row, out)]
        loaded[f"{export.name}_step"](*at, *pointers)
    return found


@pytest.mark.parametrize(
    ("name", "last"), [*((name, False) for name in LAYERS), ("lstm", True), ("unequal gru", True)]
)
def test_a_file_streams_what_pytorch_computes_at_once(
    name: str, last: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    rnn, outputs = LAYERS[name]()
    model = Net(rnn, 5, outputs, last=last).eval()
    export = export_c(model, tmp_path / "net.c", torch.randn(4, 2, 5))
    x = torch.randn(11, 1, 5)
    with torch.no_grad():
        expected = model(x)
    found = stream(export, x[:, 0].contiguous().numpy())
    wanted = expected.reshape(-1, 3).numpy()
    numpy.testing.assert_allclose(found[-len(wanted) :], wanted, atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_tied_language_model_stores_its_matrix_once(precision: Any, tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(30, 8)
            self.rnn = nn.GRU(8, 8)
            self.decoder = nn.Linear(8, 30)
            self.decoder.weight = self.embedding.weight

        def forward(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
            x, state = self.rnn(self.embedding(tokens), state)
            return self.decoder(x), state

    torch.manual_seed(0)
    model = Model().eval()
    tokens = torch.randint(30, (6, 1))
    export = export_c(model, tmp_path / "lm.c", tokens, precision=precision)
    matrix = 30 * 8 * 4 if precision == "float32" else 30 * 8 + 30 * 4
    own = sum(p.numel() for p in model.rnn.parameters() if p.dim() == 2)
    rows = 2 * 24 * 4
    rest = own * 4 if precision == "float32" else own + rows
    assert export.flash == matrix + rest + 4 * (30 + 2 * 24)
    with torch.no_grad():
        expected = model(tokens)[0][:, 0].numpy()
    found = stream(export, tokens.numpy().astype(numpy.int32))
    assert abs(found - expected).max() <= export.rounding * 3 + 1e-6
    assert (export.rounding > export.difference) == (precision == "int8")


def test_a_compacted_model_with_soft_gates_streams(tmp_path: Path) -> None:
    model = Net(nn.LSTM(5, 9, num_layers=2), 5, 9)
    example = torch.randn(4, 2, 5)
    thinrnn.attach_(model, thinrnn.find_groups(model, example))
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.linspace(-4, 4, gate.size)
    small = thinrnn.compact(model).eval()
    export = export_c(small, tmp_path / "small.c", example)
    x = torch.randn(7, 1, 5)
    with torch.no_grad():
        expected = small(x)[:, 0]
    numpy.testing.assert_allclose(stream(export, x[:, 0].numpy()), expected, atol=1e-6)


def test_a_cell_takes_and_returns_its_state(tmp_path: Path) -> None:
    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTMCell(4, 3)

        def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            h, c = self.cell(x, (h, c))
            return h, c

    model = Step()
    export = export_c(model, tmp_path / "step.c", tuple(torch.randn(2, n) for n in (4, 3, 3)))
    assert export.inputs == {"x": 4, "h": 3, "c": 3} and export.states == {}
    given = [torch.randn(1, n) for n in (4, 3, 3)]
    outputs = [numpy.zeros(3, numpy.float32) for _ in range(2)]
    arrays = [numpy.zeros(1, numpy.float32), *(t.numpy() for t in given), *outputs]
    compiled(export).step_step(*(ctypes.c_void_p(a.ctypes.data) for a in arrays))
    with torch.no_grad():
        expected = model(*given)
    for found, wanted in zip(outputs, expected, strict=True):
        numpy.testing.assert_allclose(found, wanted[0], atol=1e-6)


def test_other_files_can_include_the_declarations(tmp_path: Path) -> None:
    export_c(nn.GRU(4, 3), tmp_path / "gru.c", torch.randn(5, 2, 4))
    (tmp_path / "main.c").write_text(
        '#define GRU_HEADER\n#include "gru.c"\n#include <stdio.h>\n'
        "int main(void) {\n    float state[GRU_STATE], x[GRU_INPUT] = {1, 2, 3, 4};\n"
        "    float y[GRU_OUTPUT_0];\n    gru_reset(state);\n    gru_step(state, x, y);\n"
        '    printf("%d\\n", y[0] == state[0]);\n    return 0;\n}\n'
    )
    sources = ["main.c", "gru.c", "-o", "main"]
    strict = [GCC, "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run([*strict, *sources], check=True, cwd=tmp_path)
    printed = subprocess.run([tmp_path / "main"], check=True, capture_output=True, text=True)
    assert printed.stdout == "1\n"


class Strange(nn.Module):
    """A recurrent network with something that a C file cannot do."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.gru = nn.GRU(4, 4, bidirectional=what == "backward")
        self.conv = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.gru(x)[0]
        if self.what == "mean":
            return y.mean(0, keepdim=True) + y
        if self.what == "conv":
            return self.conv(y.permute(1, 2, 0))
        if self.what == "first":
            return y[:1] + y
        return y


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("mean", "the model calls mean"),
        ("conv", "looks across time"),
        ("first", "looks across time"),
        ("backward", "'gru.l0' also reads its input from the end"),
    ],
)
def test_what_cannot_be_written_is_named_and_leaves_no_file(
    what: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=message):
        export_c(Strange(what), tmp_path / "strange.c", torch.randn(5, 2, 4))
    assert list(tmp_path.iterdir()) == []


def test_models_with_gates_and_machines_without_a_compiler_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, example = nn.GRU(4, 3), torch.randn(5, 2, 4)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(MissingExtraError, match="no-such-compiler"):
        export_c(model, tmp_path / "gru.c", example)
    monkeypatch.undo()
    thinrnn.attach_(model, thinrnn.find_groups(model, example))
    with pytest.raises(GateError, match="compact"):
        export_c(model, tmp_path / "gru.c", example)
