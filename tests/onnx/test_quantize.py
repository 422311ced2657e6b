"""Quantized files: 8-bit weights where the runtime has kernels, nearly the same outputs."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from thinrnn import export_onnx, quantize_onnx
from thinrnn.errors import ExportError, FolderError
from thinrnn.onnx._passes import gru
from thinrnn.onnx._passes.int8 import quantized
from thinrnn.onnx.runtime import OnnxFile

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


class Tagger(nn.Module):
    def __init__(self, rnn: nn.RNNBase, width: int, *, tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(200, 24)
        self.rnn = rnn
        self.head = nn.Linear(width, 200)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Any) -> Any:
        return self.head(self.rnn(self.embedding(tokens))[0])


def files(model: nn.Module, folder: Path, *, per_row: bool = False) -> tuple[Path, Any]:
    path = folder / "float.onnx"
    if not path.exists():
        export_onnx(model, path, torch.randint(0, 200, (5, 2)))
    return path, quantize_onnx(path, folder / "int8.onnx", per_row=per_row)


def outputs(path: Path) -> Any:
    tokens = numpy.random.default_rng(0).integers(0, 200, (12, 3))
    return onnxruntime.InferenceSession(path).run(None, {"tokens": tokens})[0]


def operators(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Tagger(nn.LSTM(24, 20, 2), 20), {"DynamicQuantizeLSTM": 2, "DynamicQuantizeMatMul": 1}),
        (
            Tagger(nn.LSTM(24, 20, bidirectional=True, bias=False), 40),
            {"DynamicQuantizeLSTM": 1, "DynamicQuantizeMatMul": 1},
        ),
        (
            Tagger(nn.LSTM(24, 20, proj_size=12), 12),
            {"DynamicQuantizeLSTM": 1, "DynamicQuantizeMatMul": 2},
        ),
        (Tagger(nn.GRU(24, 20), 20), {"GRU": 1, "DynamicQuantizeMatMul": 1}),
        (Tagger(nn.RNN(24, 24), 24, tied=True), {"RNN": 1, "DynamicQuantizeMatMul": 1}),
    ],
    ids=["lstm", "bidirectional", "projection", "gru", "rnn tied"],
)
def test_outputs_stay_close(model: nn.Module, expected: dict[str, int], tmp_path: Path) -> None:
    for per_row in (False, True):
        path, done = files(model, tmp_path, per_row=per_row)
        before, after = outputs(path), outputs(done.path)
        assert numpy.linalg.norm(after - before) < 0.04 * numpy.linalg.norm(before)
        assert not numpy.array_equal(after, before)
        found = operators(done.path)
        assert {name: found[name] for name in expected} == expected and not found["LSTM"]
        assert done.bytes == done.path.stat().st_size < 0.5 * done.bytes_before


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_wide_gru_is_a_loop_of_8_bit_products(
    per_row: bool, bias: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gru, "WIDE", 20)
    model = Tagger(nn.GRU(24, 20, 2, bias=bias), 20)
    path, done = files(model, tmp_path, per_row=per_row)
    before, after = outputs(path), outputs(done.path)
    assert numpy.linalg.norm(after - before) < 0.04 * numpy.linalg.norm(before)
    assert operators(done.path)["Scan"] == 2 and not operators(done.path)["GRU"]
    now = {weight.name: weight.now for weight in done.weights}
    assert now["rnn.l0.W"] == now["rnn.l1.R"] == "int8"


def test_states_of_a_wide_gru_are_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gru, "WIDE", 20)
    x = torch.randn(6, 2, 24)
    export_onnx(nn.GRU(24, 20), tmp_path / "a.onnx", x, streaming=True)
    quantize_onnx(tmp_path / "a.onnx", tmp_path / "b.onnx")
    whole, stream = OnnxFile(tmp_path / "a.onnx"), OnnxFile(tmp_path / "b.onnx")
    expected = whole({"input": x.numpy(), **whole.first_states(2)})["output.0"]
    found = stream.stream({"input": x.numpy()}, {"input": 0}, [1, 2, 3], 2)["output.0"]
    assert numpy.linalg.norm(found - expected) < 0.04 * numpy.linalg.norm(expected)


class LastWord(Tagger):
    """The head sees one step: its product is another operator in ONNX."""

    def forward(self, tokens: Any) -> Any:
        return self.head(self.rnn(self.embedding(tokens))[0][-1])


def test_tied_matrix_of_a_single_step_is_stored_once(tmp_path: Path) -> None:
    model = LastWord(nn.LSTM(24, 24), 24, tied=True)
    for per_row in (False, True):
        path, done = files(model, tmp_path, per_row=per_row)
        before, after = outputs(path), outputs(done.path)
        assert numpy.linalg.norm(after - before) < 0.04 * numpy.linalg.norm(before)
        assert operators(done.path)["DynamicQuantizeMatMul"] == 1
        sizes = [numpy.prod(w.dims) for w in onnx.load(done.path).graph.initializer]
        assert sizes.count(200 * 24) == 1


class TwoTables(Tagger):
    """Most words have short vectors, which a matrix makes longer: one table of all of them."""

    def __init__(self) -> None:
        super().__init__(nn.LSTM(24, 24), 24)
        self.embedding, self.head = nn.Embedding(60, 24), nn.Linear(24, 60)
        self.head.weight = self.embedding.weight
        self.short, self.widen = nn.Embedding(140, 8), nn.Linear(8, 24, bias=False)
        self.others = nn.Linear(8, 140)
        self.others.weight = self.short.weight

    def forward(self, tokens: Any) -> Any:
        table = torch.cat([self.embedding.weight, self.short.weight @ self.widen.weight.t()])
        hidden = self.rnn(nn.functional.embedding(tokens, table))[0]
        narrow = nn.functional.linear(hidden, self.widen.weight.t())
        return torch.cat([self.head(hidden), self.others(narrow)], -1)


def test_weights_of_a_table_are_stored_once_and_in_8_bits(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = TwoTables()
    for per_row in (False, True):
        before, result = files(model, tmp_path, per_row=per_row)
        wanted, found = outputs(before), outputs(result.path)
        assert numpy.abs(wanted - found).max() < 0.03 * numpy.abs(wanted).max()
        for path, kind in ((before, "FLOAT"), (result.path, "INT8")):
            shapes = Counter(
                tuple(one.dims)
                for one in onnx.load(path).graph.initializer
                if onnx.TensorProto.DataType.Name(one.data_type) == kind
            )
            assert shapes[60, 24] == shapes[140, 8] == shapes[8, 24] == 1
            assert shapes[200, 24] == shapes[140, 24] == shapes[8, 140] == shapes[24, 60] == 0
        names = {name for name, _ in TwoTables().named_parameters(remove_duplicate=False)}
        assert all(
            w.name.removesuffix(".T") in names or w.name[:3] == "rnn" for w in result.weights
        )
        assert all(
            len(w.shape) == 1 or w.name.endswith(".B") for w in result.weights if "float" in w.now
        )


def test_tiny_layers_stay_as_they_are(tmp_path: Path) -> None:
    export_onnx(nn.LSTM(24, 2), tmp_path / "a.onnx", torch.randn(5, 2, 24))
    done = quantize_onnx(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert operators(done.path)["LSTM"] == 1
    assert {weight.name: weight.now for weight in done.weights} == {
        "l0.W": "float32",
        "l0.R": "float32",
        "l0.B": "float32",
    }


def test_every_weight_is_listed_with_what_became_of_it(tmp_path: Path) -> None:
    _, done = files(Tagger(nn.GRU(24, 20), 20), tmp_path)
    now = {weight.name: weight.now for weight in done.weights}
    assert now == {
        "embedding.weight": "int8 lookup",
        "rnn.l0.W": "int8 in the file",
        "rnn.l0.R": "int8 in the file",
        "rnn.l0.B": "float32",
        "head.weight.T": "int8",
        "head.bias": "float32",
    }
    why = {weight.name: weight.why for weight in done.weights}
    assert "no 8-bit kernel" in why["rnn.l0.W"] and "a bias" in why["head.bias"]
    assert "times smaller" in str(done) and "rnn.l0.R" in str(done)


def test_metadata_and_axes_stay(tmp_path: Path) -> None:
    model = nn.LSTM(24, 20)
    export_onnx(
        model, tmp_path / "a.onnx", torch.randn(5, 2, 24), streaming=True, metadata={"mine": "1"}
    )
    done = quantize_onnx(tmp_path / "a.onnx", tmp_path / "b.onnx")
    session = onnxruntime.InferenceSession(done.path)
    about = session.get_modelmeta().custom_metadata_map
    assert about["mine"] == "1" and about["quantized"] == "int8" and "thinrnn" in about
    assert [v.shape for v in session.get_inputs()] == [
        ["time", "batch", 24],
        [1, "batch", 20],
        [1, "batch", 20],
    ]


def test_a_result_that_loses_too_much_is_not_kept(tmp_path: Path) -> None:
    path, _ = files(Tagger(nn.LSTM(24, 20), 20), tmp_path)
    exact = outputs(path)

    def measure(file: Path) -> float:
        return 1 + float(numpy.abs(outputs(file) - exact).max())

    out = tmp_path / "kept.onnx"
    with pytest.raises(ExportError, match="nothing was written"):
        quantize_onnx(path, out, measure=measure, max_loss=0)
    assert not out.exists()
    done = quantize_onnx(path, out, measure=measure, max_loss=0.2)
    assert done.quality_before == 1 and 0 < (done.loss or 0) < 0.2
    assert "quality 1.0000 ->" in str(done)


def test_what_cannot_be_quantized_is_refused(tmp_path: Path) -> None:
    path, done = files(Tagger(nn.LSTM(24, 20), 20), tmp_path)
    with pytest.raises(FolderError, match="quantized already"):
        quantize_onnx(done.path, tmp_path / "again.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(FolderError, match="is not an ONNX file"):
        quantize_onnx(tmp_path / "text.onnx", tmp_path / "out.onnx")
    with pytest.raises(FolderError, match="cannot read"):
        quantize_onnx(tmp_path / "nowhere.onnx", tmp_path / "out.onnx")
    with pytest.raises(ExportError, match="needs a measure"):
        quantize_onnx(path, tmp_path / "out.onnx", max_loss=0.1)


def test_scales_are_those_of_a_matrix_or_of_its_rows() -> None:
    rows = numpy.array([[1e-3, -2e-3], [10.0, 5.0], [0.0, 0.0]], numpy.float32)
    codes, scale = quantized(rows, per_row=True)
    assert codes.dtype == numpy.int8 and scale.shape == (3,)
    numpy.testing.assert_allclose(codes * scale[:, None], rows, rtol=1e-2)
    codes, scale = quantized(rows, per_row=False)
    assert scale.shape == () and codes[0].tolist() == [0, 0] and codes[1].tolist() == [127, 64]
