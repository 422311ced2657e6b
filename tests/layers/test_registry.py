"""Layers of a user's own: registered, found, gated, cut, saved like those that thinrnn knows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thinrnn
from thinrnn._layers.registry import LAYERS
from thinrnn.errors import LayerError


class MGUCell(nn.Module):
    """A minimal gated unit: one gate, which also resets the state."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.weight_ih = nn.Parameter(torch.randn(2 * hidden_size, input_size) / 2)
        self.weight_f = nn.Parameter(torch.randn(hidden_size, hidden_size) / 2)
        self.weight_h = nn.Parameter(torch.randn(hidden_size, hidden_size) / 2)
        self.bias = nn.Parameter(torch.randn(2 * hidden_size))

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        h = input.new_zeros(len(input), self.hidden_size) if hx is None else hx
        a_f, a_h = nn.functional.linear(input, self.weight_ih, self.bias).chunk(2, -1)
        f = torch.sigmoid(a_f + h @ self.weight_f.T)
        return (1 - f) * h + f * torch.tanh(a_h + (f * h) @ self.weight_h.T)


class MGULayer(thinrnn.Layer):
    def build(self) -> None:
        rows, m = self.module.weight_ih.shape
        both = self.rows("weight_ih", "bias", starts=(0, rows // 2))
        each = self.rows("weight_f", "weight_h")
        readers = self.columns("weight_f", "weight_h")
        self.add("input", m, *self.columns("weight_ih"))
        self.add("output", rows // 2, *both, *each, *readers)

    def resize(self) -> None:
        rows, self.module.input_size = self.module.weight_ih.shape
        self.module.hidden_size = rows // 2

    @property
    def state_spaces(self) -> list[list[str]]:
        return [["output"]]


class Sequence(nn.Module):
    """A recurrent module that returns all outputs and the last state."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.weight_ih = nn.Parameter(torch.randn(hidden_size, input_size) / 2)
        self.weight_hh = nn.Parameter(torch.randn(hidden_size, hidden_size) / 2)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        h = input.new_zeros(input.shape[1], len(self.weight_hh)) if hx is None else hx
        outputs = []
        for x in input:
            h = torch.tanh(x @ self.weight_ih.T + h @ self.weight_hh.T)
            outputs.append(h)
        return torch.stack(outputs), h


class SequenceLayer(thinrnn.Layer):
    def build(self) -> None:
        n, m = self.module.weight_ih.shape
        made, readers = self.rows("weight_ih", "weight_hh"), self.columns("weight_hh")
        self.add("input", m, *self.columns("weight_ih"))
        self.add("output", n, *made, *readers)

    def resize(self) -> None:
        pass

    @property
    def state_spaces(self) -> list[list[str]]:
        return [["output"]]

    def state_of(self, result: Any) -> Any:
        return result[1]

    def edit(self, result: Any, change: Any) -> Any:
        return tuple(change("output", part) for part in result)


class Model(nn.Module):
    """A layer of each kind, the cell in a loop; states are given and returned."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 6)
        self.cell = MGUCell(6, 7)
        self.rnn = Sequence(7, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, tokens: Tensor, states: Any = None) -> Any:
        h, state = (None, None) if states is None else states
        steps = []
        for x in self.embedding(tokens):
            h = self.cell(x, h)
            steps.append(h)
        y, state = self.rnn(torch.stack(steps), state)
        return self.out(y), (h, state)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    before = dict(LAYERS)
    thinrnn.register_layer(MGUCell)(MGULayer)
    thinrnn.register_layer(Sequence)(SequenceLayer)
    yield
    LAYERS.clear()
    LAYERS.update(before)


def example(states: bool) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(9, (5, 4), generator=generator)
    given = tuple(torch.randn(4, n, generator=generator).double() for n in (7, 8))
    return (tokens, given) if states else (tokens,)


@pytest.mark.parametrize("states", [False, True])
def test_a_custom_recurrent_layer_is_pruned_exactly(states: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Model().double().eval()
    plan = thinrnn.find_groups(model, example(states))
    assert {g.name: g.size for g in plan} == {"embedding": 6, "cell": 7, "rnn": 8}
    assert plan["cell"].owners("read") == ["cell", "rnn"]
    thinrnn.attach_(model, plan)
    generator = torch.Generator().manual_seed(2)
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = 3 * torch.randn(gate.size, generator=generator)
    small = thinrnn.compact(model)
    kept = {name: gate.keep for name, gate in thinrnn.gates(model).items()}
    assert all(0 < int(k.sum()) < len(k) for k in kept.values())
    assert small.cell.hidden_size == int(kept["cell"].sum())
    assert small.cell.weight_ih.shape == (2 * small.cell.hidden_size, small.embedding.embedding_dim)
    assert thinrnn.verify(model, small, example(states)) < 1e-10
    tokens, *given = example(states)
    own = [tuple(s[:, kept[n]] for n, s in zip(("cell", "rnn"), g, strict=True)) for g in given]
    with torch.no_grad():
        gated_output, gated_states = model(tokens, *given)
        output, small_states = small(tokens, *own)
    torch.testing.assert_close(output, gated_output, rtol=1e-10, atol=1e-10)
    for name, large, little in zip(("cell", "rnn"), gated_states, small_states, strict=True):
        torch.testing.assert_close(little, large[:, kept[name]], rtol=1e-10, atol=1e-10)
    thinrnn.save(small, tmp_path)
    loaded = thinrnn.load_(Model().double(), tmp_path).eval()
    torch.testing.assert_close(loaded(tokens, *own)[0], small(tokens, *own)[0])


def test_the_penalties_count_its_matrices() -> None:
    model = Model()
    thinrnn.attach_(model, thinrnn.find_groups(model, example(False)))
    size = sum(p.numel() for n, p in model.named_parameters() if "thinrnn" not in n)
    assert thinrnn.count(thinrnn.compact(model), example(False)).params == size
    thinrnn.L0(model, weight=1e-3)().backward()
    gates = thinrnn.gates(model).values()
    assert all(bool((gate.log_alpha.grad > 0).all()) for gate in gates)


def test_the_most_specific_class_counts() -> None:
    class Fixed(nn.Linear):
        """Its outputs cannot go."""

    class FixedLayer(thinrnn.Layer):
        def build(self) -> None:
            self.add("input", self.module.weight.shape[1], *self.columns("weight"))

        def resize(self) -> None:
            self.module.in_features = self.module.weight.shape[1]

        def edit(self, result: Any, change: Any) -> Any:
            return result

    def groups() -> list[str]:
        model = nn.Sequential(nn.Linear(3, 4), Fixed(4, 5), nn.RNNCell(5, 6))
        return [group.name for group in thinrnn.find_groups(model, torch.randn(2, 3))]

    assert "1" in groups()
    thinrnn.register_layer(Fixed)(FixedLayer)
    assert "1" not in groups()


def test_what_is_no_layer_is_refused_by_name() -> None:
    with pytest.raises(LayerError, match=r"give a subclass of thinrnn\.Layer"):
        thinrnn.register_layer(MGUCell)(MGUCell)  # type: ignore[type-var]
    with pytest.raises(LayerError, match="give a module class"):
        thinrnn.register_layer(MGUCell(3, 4))(MGULayer)  # type: ignore[arg-type]
