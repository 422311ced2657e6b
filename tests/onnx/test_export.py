"""Exported files do what their models do, at other sizes than the example's, also in chunks."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import thinrnn
from thinrnn import RNNStack, export_onnx, quantize_onnx
from thinrnn.nn.rhn import RHN

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@dataclass(frozen=True)
class Case:
    """A recurrent network, how it is called, and at which size."""

    kind: str
    sizes: tuple[tuple[int, ...], ...]  # by layer and direction
    projection: int
    bias: bool
    batch_first: bool
    streaming: bool
    packed: bool
    example: tuple[int, int]  # batch, time
    other: tuple[int, int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    directions = draw(st.integers(1, 2))
    layers = draw(st.integers(1, 2))
    size = st.integers(1, 5)
    equal = draw(st.booleans())
    first = tuple(draw(size) for _ in range(directions)) if not equal else (3,) * directions
    sizes = [first] + [
        first if equal else tuple(draw(size) for _ in range(directions)) for _ in range(layers - 1)
    ]
    streaming = directions == 1 and draw(st.booleans())
    kind = draw(st.sampled_from(["LSTM", "GRU", "RNN_TANH", "RNN_RELU"]))
    numbers = st.tuples(st.integers(1, 4), st.integers(1, 5))
    return Case(
        kind,
        tuple(sizes),
        draw(st.sampled_from([0, 2])) if kind == "LSTM" else 0,
        draw(st.booleans()),
        draw(st.booleans()),
        streaming,
        not streaming and draw(st.booleans()),
        draw(numbers),
        draw(numbers),
    )


def make_cell(case: Case, inputs: int, hidden: int) -> nn.RNNBase:
    options: dict[str, Any] = {"bias": case.bias, "batch_first": case.batch_first}
    if case.kind == "LSTM":
        if case.projection:
            return nn.LSTM(inputs, hidden + 2, proj_size=case.projection, **options)
        return nn.LSTM(inputs, hidden, **options)
    if case.kind == "GRU":
        return nn.GRU(inputs, hidden, **options)
    return nn.RNN(inputs, hidden, nonlinearity=case.kind[4:].lower(), **options)


class Net(nn.Module):
    """A linear layer behind a stack of recurrent ones, packed or not."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        cells, width = {}, 4
        for layer, sizes in enumerate(case.sizes):
            for name, size in zip((f"l{layer}", f"l{layer}_reverse"), sizes, strict=False):
                cells[name] = make_cell(case, width, size)
            width = sum(case.projection or size for size in sizes)
        stack = RNNStack(cells, batch_first=case.batch_first, dropout=0.0)
        self.rnn = stack.to_rnn() or stack
        self.head = nn.Linear(width, 3)
        self.batch_first = case.batch_first

    def forward(self, x: Any, lengths: Any = None) -> Any:
        if lengths is not None:
            x = pack_padded_sequence(x, lengths, self.batch_first, enforce_sorted=False)
        output, _ = self.rnn(x)
        if lengths is not None:
            output, _ = pad_packed_sequence(output, self.batch_first)
        return self.head(output)


def make_input(case: Case, size: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    batch, time = size
    x = torch.randn(batch, time, 4)
    lengths = torch.randint(1, time + 1, (batch,))
    lengths[batch // 2] = time
    return (x if case.batch_first else x.transpose(0, 1), *([lengths] if case.packed else []))


def run(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(path)
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, values), strict=True))


def operators(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


@given(case=cases())
@settings(max_examples=6, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # seconds each
def test_file_does_what_the_model_does(case: Case, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("grid") / "model.onnx"
    model = Net(case).eval()
    export = export_onnx(model, path, make_input(case, case.example), streaming=case.streaming)
    assert export.difference <= 1e-4 and export.bytes == path.stat().st_size
    assert operators(path)[case.kind[:3].replace("LST", "LSTM")] >= len(case.sizes)

    given = make_input(case, case.other)
    with torch.no_grad():
        expected = model(*given)
    values = dict(zip(["x", "lengths"], (t.numpy() for t in given), strict=False))
    if not case.streaming:
        found = run(path, values)["output"]
    else:
        found = run_one_by_one(path, export, values["x"], 1 if case.batch_first else 0)
    numpy.testing.assert_allclose(found, expected, atol=1e-5)


def run_one_by_one(path: Path, export: Any, x: Any, time_axis: int) -> Any:
    """The outputs for one step after the other, states handed on."""
    session = onnxruntime.InferenceSession(path)
    names = [value.name for value in session.get_outputs()]
    batch = x.shape[1 - time_axis]
    state = {
        name: numpy.zeros((1, batch, export.inputs[name][-1]), numpy.float32)
        for name in export.states
    }
    found = []
    for step in range(x.shape[time_axis]):
        values = {"x": x.take([step], time_axis), **state}
        result = dict(zip(names, session.run(None, values), strict=True))
        state = {name: result[f"{name}.next"] for name in export.states}
        found.append(result["output"])
    return numpy.concatenate(found, time_axis)


class LanguageModel(nn.Module):
    """As most people write it: tokens and a state in, logits and the next state out."""

    def __init__(self, vocabulary: int = 30, size: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.rnn = nn.LSTM(size, size, num_layers=2)
        self.decoder = nn.Linear(size, vocabulary, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Any, state: Any = None) -> Any:
        output, state = self.rnn(self.embedding(tokens), state)
        return self.decoder(output), state


def pruned(model: nn.Module, example: Any) -> nn.Module:
    thinrnn.attach_(model, thinrnn.find_groups(model, example))
    torch.manual_seed(0)
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = 3 * torch.randn(gate.size) + 1
    return thinrnn.compact(model)


def test_pruned_language_model_streams(tmp_path: Path) -> None:
    tokens = torch.randint(0, 30, (5, 2))
    small = pruned(LanguageModel(), tokens)
    path = tmp_path / "lm.onnx"
    export = export_onnx(small, path, tokens, streaming=True, metadata={"vocabulary": {"a": 1}})
    assert isinstance(small.rnn, RNNStack)
    assert export.inputs["tokens"] == ("time", "batch")
    assert export.states == ("rnn.l0.h", "rnn.l0.c", "rnn.l1.h", "rnn.l1.c")
    # what the model returns as its state is not returned a second time
    assert list(export.outputs) == ["output.0", *(f"{name}.next" for name in export.states)]
    about = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert about["thinrnn"] == thinrnn.__version__ and about["vocabulary"] == '{"a": 1}'
    assert '"rnn.l0"' in about["sizes"]
    assert "largest difference from PyTorch" in str(export)


def test_layers_that_are_called_twice_are_stored_once(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.LSTM(40, 40), nn.Linear(40, 40)

        def forward(self, one: Any, other: Any) -> Any:
            return self.head(self.rnn(one)[0]), self.head(self.rnn(other)[0])

    model, path = Twice(), tmp_path / "twice.onnx"
    export_onnx(model, path, (torch.randn(5, 2, 40), torch.randn(7, 2, 40)))
    assert operators(path)["LSTM"] == 2
    stored = sum(numpy.prod(one.dims) for one in onnx.load(path).graph.initializer)
    assert stored < 1.05 * sum(p.numel() for p in model.parameters())


def test_bias_of_a_wide_layer_is_a_row_of_its_weights(tmp_path: Path) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.GRU(6, 5), nn.Linear(5, 20)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.rnn(x)[0])

    path = export_onnx(Words(), tmp_path / "words.onnx", torch.randn(4, 2, 6)).path
    graph = onnx.load(path).graph
    assert "Add" not in {node.op_type for node in graph.node}
    assert [6, 20] in [list(weight.dims) for weight in graph.initializer]
    done = quantize_onnx(path, tmp_path / "words.int8.onnx")  # a bias does not fit into 8 bits
    assert {w.name: w.shape for w in done.weights if "head" in w.name} == {
        "head.weight.T": (5, 20),
        "head.bias": (20,),
    }


def test_tied_matrix_is_stored_once(tmp_path: Path) -> None:
    model = LanguageModel(vocabulary=2000)
    export = export_onnx(model, tmp_path / "tied.onnx", torch.randint(0, 30, (5, 2)))
    assert export.bytes < 1.2 * 4 * sum(p.numel() for p in model.parameters())


class HighwayModel(nn.Module):
    """Two recurrent highway networks, one on the other."""

    def __init__(self) -> None:
        super().__init__()
        self.lower = RHN(4, 9, depth=3, batch_first=True)
        self.upper = RHN(9, 8, depth=2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.upper(self.lower(x)[0])[0]


def test_highway_networks_are_scans_and_stream(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    export = export_onnx(HighwayModel(), path, torch.randn(2, 5, 4), streaming=True)
    assert operators(path)["Scan"] == 2
    assert export.states == ("lower.l0.h", "upper.l0.h") and len(export.checked) > 4
    done = quantize_onnx(path, tmp_path / "b.onnx")
    now = {weight.name: weight.now for weight in done.weights}
    assert now["lower.weight_hh_d2"] == now["upper.weight_hh_d0"] == "int8"
    x = {"x": torch.randn(3, 7, 4).numpy()}
    x |= {name: numpy.zeros((1, 3, export.inputs[name][2]), "float32") for name in export.states}
    before, after = (run(file, x)["output"] for file in (path, done.path))
    assert 0 < numpy.linalg.norm(after - before) < 0.04 * numpy.linalg.norm(before)


def test_given_state_is_an_input(tmp_path: Path) -> None:
    model = nn.LSTM(4, 5, proj_size=3, bidirectional=True)
    state = (torch.randn(2, 2, 3), torch.randn(2, 2, 5))
    export = export_onnx(model, tmp_path / "a.onnx", (torch.randn(6, 2, 4), state))
    assert list(export.inputs) == ["input", "hx.0", "hx.1"]
    assert export.inputs["hx.0"] == (2, "batch", 3)


class TwoSequences(nn.Module):
    """One layer for two sequences of their own lengths, from states made by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 9, num_layers=2, batch_first=True)
        self.head = nn.Linear(18, 2)

    def read(self, x: Any) -> Any:
        zeros = torch.zeros(2, x.size(0), self.rnn.hidden_size)
        return self.rnn(x, (zeros, zeros))[0][:, -1]

    def forward(self, question: Any, answer: Any) -> Any:
        return self.head(torch.cat([self.read(question), self.read(answer)], 1))


def test_two_lengths_are_two_axes(tmp_path: Path) -> None:
    example = (torch.randn(2, 5, 4), torch.randn(2, 5, 4))
    small = pruned(TwoSequences(), example)
    export = export_onnx(small, tmp_path / "a.onnx", example)
    assert export.inputs == {
        "question": ("batch", "time", 4),
        "answer": ("batch", "time_2", 4),
    }
    assert operators(tmp_path / "a.onnx")["LSTM"] == 4


def test_packed_sequence_as_argument_is_data_and_lengths(tmp_path: Path) -> None:
    x = pack_padded_sequence(torch.randn(4, 3, 6), torch.tensor([4, 2, 1]))
    export = export_onnx(nn.GRU(6, 5, bidirectional=True), tmp_path / "a.onnx", x)
    assert export.inputs == {
        "input.data": ("time", "batch", 6),
        "input.lengths": ("batch",),
    }


def test_one_step_of_a_cell(tmp_path: Path) -> None:
    example = (torch.randn(2, 4), torch.randn(2, 3))
    export = export_onnx(nn.GRUCell(4, 3), tmp_path / "a.onnx", example)
    assert export.inputs == {"input": ("batch", 4), "hx": ("batch", 3)}


def test_model_is_left_alone(tmp_path: Path) -> None:
    model = LanguageModel().double().train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    forward = model.rnn.forward
    export_onnx(model, tmp_path / "a.onnx", torch.randint(0, 30, (5, 2)))
    assert model.training and model.rnn.forward == forward
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_no_source_path_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    export_onnx(nn.GRU(4, 3), path, torch.randn(5, 2, 4))
    assert b".py" not in path.read_bytes()


class Cancelling(nn.Module):
    """Large terms cancel, so that little of float32 is left of their sum."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(256, 4)
        with torch.no_grad():
            self.linear.weight.mul_(3e3)
            self.linear.weight[:, 128:] = -self.linear.weight[:, :128]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.linear(torch.cat([x, x + 1e-4 * x.cos()], -1))
        return output


def test_rounding_that_the_model_has_itself_is_no_error(tmp_path: Path) -> None:
    torch.manual_seed(0)
    export = export_onnx(Cancelling(), tmp_path / "model.onnx", torch.randn(5, 128))
    assert export.inputs == {"x": ("axis0", 128)} and export.difference < 1e-2
