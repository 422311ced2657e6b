"""Parameters, mult-adds and bytes, down to the figures of the paper's Table 1."""

import pytest
import torch
from cell_grid import CellShape
from grids import Shape, gated_model
from paper_model import LanguageModel, dense_model
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

import thinrnn
from thinrnn._gates.sizes import Sizes

TABLE = {  # (input, layer 1, layer 2) -> weights, mult-add reduction
    (1500, 1500, 1500): (66.000e6, 1.0),
    (1500, 373, 315): (21.811e6, 7.487),
    (251, 296, 247): (6.164e6, 13.957),
}


@pytest.mark.parametrize("sizes", TABLE)
def test_the_paper_s_table(sizes: tuple[int, int, int]) -> None:
    weights, reduction = TABLE[sizes]
    dense = thinrnn.count(dense_model("meta"))
    small = thinrnn.count(LanguageModel(10_000, sizes[0], sizes[1:], "meta"))
    assert small.weights == pytest.approx(weights, abs=500)
    assert dense.macs / small.macs == pytest.approx(reduction, abs=5e-4)
    biases = 2 * 4 * (sizes[1] + sizes[2]) + 10_000
    assert small.params == small.weights + biases
    assert small.bytes == 4 * small.params


def test_by_module() -> None:
    counted = thinrnn.count(LanguageModel(20, 5, (4, 3)))
    numbers = {m.name: (m.kind, m.params, m.macs, m.bytes) for m in counted.modules}
    assert numbers == {
        "embedding": ("Embedding", 100, 0, 400),
        "lstm1": ("LSTM", 4 * 4 * (5 + 4 + 2), 4 * 4 * (5 + 4), 4 * 4 * 4 * (5 + 4 + 2)),
        "lstm2": ("LSTM", 4 * 3 * (4 + 3 + 2), 4 * 3 * (4 + 3), 4 * 4 * 3 * (4 + 3 + 2)),
        "decoder": ("Linear", 80, 60, 320),
    }
    assert counted.params == sum(m.params for m in counted.modules)
    assert counted.macs == sum(m.macs for m in counted.modules)
    lines = str(counted).splitlines()
    assert lines[0].split() == ["module", "kind", "parameters", "mult-adds", "bytes"]
    assert lines[-1].split() == ["total", f"{counted.params:,}", f"{counted.macs:,}", "1,856"]
    assert len({len(line) for line in lines}) == 1


def test_a_tied_weight_counts_once_and_multiplies_where_it_is_a_matrix() -> None:
    shape = Shape(reader="tied")
    model = shape.model()
    counted = thinrnn.count(model)
    assert counted.params == sum(p.numel() for p in model.parameters())
    assert counted.bytes == 8 * counted.params
    by_name = {m.name: m for m in counted.modules}
    assert (by_name["front"].params, by_name["front"].macs) == (7 * 4, 0)
    assert (by_name["head"].params, by_name["head"].macs) == (7, 7 * 4)


def test_a_gated_model_counts_as_what_compact_makes_of_it() -> None:
    model, _ = gated_model(Shape())
    dense = thinrnn.count(Shape().model())
    assert thinrnn.count(model) == dense
    thinrnn.gates(model)["rnn.l1"].log_alpha = torch.tensor([-9.0, 1, 1, -9])
    assert thinrnn.count(model) == thinrnn.count(thinrnn.compact(model))
    assert thinrnn.count(model).params < dense.params


class Everything(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.conv = nn.Conv1d(4, 6, 3)
        self.norm = nn.BatchNorm1d(6)
        self.rnn = nn.GRU(6, 5, num_layers=2, batch_first=True)
        self.head = nn.Linear(5, 2)
        self.unused = nn.Linear(5, 2)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(self.embedding(x).transpose(1, 2))).transpose(1, 2)
        return self.head(input=self.rnn(input=x)[0][:, -1]) * self.scale


def test_the_mult_adds_of_a_whole_call() -> None:
    model = Everything()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    counted = thinrnn.count(model, torch.randint(9, (3, 7)))
    times = {m.name: m.applied for m in counted.modules}
    assert times["embedding"] == 3 * 7
    assert times["conv"] == times["rnn"] == 3 * 5
    assert times["head"] == 3
    assert times["unused"] is None
    assert times["(model)"] is None
    rnn = 3 * 5 * (6 + 5 + 5 + 5)
    assert counted.example_macs == 15 * (6 * 4 * 3) + 15 * rnn + 3 * 10
    assert counted.macs == 6 * 4 * 3 + rnn + 10 * 3 / 15
    assert thinrnn.count(model).macs == 6 * 4 * 3 + rnn + 10 + 10
    assert all(torch.equal(model.state_dict()[name], t) for name, t in before.items())
    assert model.training


def test_packed_sequences_and_cells_in_loops() -> None:
    packed = pack_sequence([torch.randn(4, 3), torch.randn(2, 3)])
    counted = thinrnn.count(nn.LSTM(3, 5), packed)
    assert [m.applied for m in counted.modules] == [6]
    shape = CellShape(("GRU", "LSTM"), True, 3, (4, 5), steps=3, batch=2, state="none", read="last")
    counted = thinrnn.count(shape.model(), shape.arguments())
    assert [m.applied for m in counted.modules] == [6, 6, 2]


def test_a_stack_counts_as_its_cells() -> None:
    model, _ = gated_model(Shape())
    thinrnn.gates(model)["rnn.l1"].log_alpha = torch.tensor([-9.0, 1, 1, -9])
    small = thinrnn.compact(model)
    counted = thinrnn.count(small, Shape().arguments())
    assert [m.name for m in counted.modules] == ["front", "rnn.l0", "rnn.l1", "head"]
    assert {m.applied for m in counted.modules} == {6}
    assert counted.example_macs == 6 * counted.macs


class ByHand(nn.Module):
    """Matrices in modules that thinrnn cannot cut, beside tables and states that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 6, batch_first=True)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(6, 5))
        self.weight_out = nn.Parameter(torch.randn(5, 3))
        self.first_state = nn.Parameter(torch.zeros(1, 2, 6))
        self.norm = nn.LayerNorm((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        h, _ = self.rnn(x, self.first_state)
        h, _ = self.attention(h, h, h)
        return self.norm((self.head(h) @ self.weight_out)[:, :2])


def test_matrices_in_modules_that_cannot_be_cut() -> None:
    counted = thinrnn.count(ByHand(), torch.randn(2, 7, 4))
    macs = {m.name: (m.macs, m.applied) for m in counted.modules}
    assert macs["attention"] == (3 * 6 * 6, 14)
    assert macs["attention.out_proj"] == (6 * 6, 14)
    assert macs["(model)"] == (5 * 3, 14)
    assert macs["norm"] == (0, None)
    assert macs["head.parametrizations.weight"] == (6 * 5, 14)
    gru = 3 * 6 * (4 + 6)
    assert counted.macs == gru + 4 * 6 * 6 + 5 * 3 + 6 * 5
    sizes = Sizes(ByHand(), thinrnn.Plan(()))
    assert sizes.size_of(sizes.fixed, "macs") == counted.macs
