"""Files for ExecuTorch and LiteRT do what their models do, whole and step by step."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thinrnn
from thinrnn import EdgeExport, RNNStack, export_executorch, export_litert
from thinrnn._extras import missing
from thinrnn.edge.steps import Steps
from thinrnn.errors import ExportError, GateError, MissingExtraError
from thinrnn.nn.rhn import RHN

WRITERS = {
    "executorch": (export_executorch, ("executorch",)),
    "litert": (export_litert, ("litert_torch", "ai_edge_litert", "ai_edge_quantizer")),
}


def writer(name: str) -> Any:
    write, packages = WRITERS[name]
    if absent := missing(*packages):
        pytest.skip(f"{' and '.join(absent)} not installed: pip install '.[{name}]'")
    return write


class Net(nn.Module):
    def __init__(self, rnn: nn.Module, width: int, *, last: bool = False) -> None:
        super().__init__()
        self.rnn, self.head, self.last = rnn, nn.Linear(width, 3), last

    def forward(self, x: Tensor) -> Tensor:
        y = self.rnn(x)[0]
        return torch.softmax(self.head(y[-1] if self.last else y), -1)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(11, 5), nn.LSTM(5, 4, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.rnn(self.embedding(tokens))[0]


def stack(kind: type[nn.RNNBase]) -> RNNStack:
    return RNNStack({"l0": kind(5, 6), "l1": kind(6, 4)}, batch_first=False, dropout=0.3)


MODELS = {
    "lstm": lambda: Net(nn.LSTM(5, 6, 2), 6),
    "gru, last step": lambda: Net(nn.GRU(5, 6), 6, last=True),
    "tanh": lambda: Net(nn.RNN(5, 6), 6),
    "relu": lambda: Net(nn.RNN(5, 6, nonlinearity="relu", bias=False), 6),
    "projected": lambda: Net(nn.LSTM(5, 6, proj_size=3), 3),
    "unequal lstm": lambda: Net(stack(nn.LSTM), 4),
    "unequal gru": lambda: Net(stack(nn.GRU), 4),
    "rhn": lambda: Net(RHN(5, 6, depth=2), 6),
}


@pytest.mark.parametrize("name", [name for name in MODELS if name != "rhn"])
def test_written_steps_equal_the_layers(name: str) -> None:
    model, x = MODELS[name]().eval(), torch.randn(7, 2, 5)
    with torch.no_grad():
        expected = model(x)
        for module in model.modules():
            if isinstance(module, nn.RNNBase):  # called as a module, not by its stack
                module.register_forward_pre_hook(lambda *_: None)
        with Steps(None):
            torch.testing.assert_close(model(x), expected)


@pytest.mark.extended
@pytest.mark.parametrize("runtime", WRITERS)
@pytest.mark.parametrize("name", MODELS)
def test_streams_equal_the_model(runtime: str, name: str, tmp_path: Path) -> None:
    write = writer(runtime)
    torch.manual_seed(0)
    export: EdgeExport = write(
        MODELS[name]().eval(), tmp_path / "a.bin", torch.randn(4, 1, 5), streaming=True
    )
    assert export.difference < 1e-5
    assert export.states and all(f"{state}.next" in export.outputs for state in export.states)
    assert export.inputs["x"] == (1, 1, 5)


@pytest.mark.extended
@pytest.mark.parametrize("runtime", WRITERS)
def test_whole_sequences_and_8_bits(runtime: str, tmp_path: Path) -> None:
    write = writer(runtime)
    torch.manual_seed(0)
    x = torch.randn(4, 2, 5)
    bidirectional = Net(nn.GRU(5, 6, bidirectional=True), 12)
    assert write(bidirectional, tmp_path / "a.bin", x).difference < 1e-5
    words = write(Words(), tmp_path / "b.bin", torch.randint(11, (3, 1)), streaming=True)
    assert words.difference < 1e-5 and len(words.states) == 4
    wide = Net(nn.GRU(64, 64), 64)
    sizes = [
        write(wide, tmp_path / "c.bin", torch.randn(3, 1, 64), streaming=True, precision=one).bytes
        for one in ("float32", "int8")
    ]
    assert sizes[1] < 0.5 * sizes[0]


@pytest.mark.parametrize("runtime", WRITERS)
def test_missing_packages_are_named(runtime: str, tmp_path: Path) -> None:
    write, packages = WRITERS[runtime]
    if not missing(*packages):
        pytest.skip("installed")
    with pytest.raises(MissingExtraError, match=rf"\[{runtime}\]"):
        write(nn.GRU(4, 3), tmp_path / "a.bin", torch.randn(3, 1, 4))


@pytest.mark.parametrize("runtime", WRITERS)
def test_refusals(runtime: str, tmp_path: Path) -> None:
    write, x, path = writer(runtime), torch.randn(3, 1, 4), tmp_path / "a.bin"
    with pytest.raises(ExportError, match="precision"):
        write(nn.GRU(4, 3), path, x, precision="int4")
    with pytest.raises(ExportError, match="reads its input from the end"):
        write(nn.GRU(4, 3, bidirectional=True), path, x, streaming=True)
    gated = nn.GRU(4, 8)
    thinrnn.attach_(gated, thinrnn.find_groups(gated, x))
    with pytest.raises(GateError, match="compact"):
        write(gated, path, x)
    assert not path.exists()
