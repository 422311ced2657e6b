"""What the small model is: plain, independent of the gated one, and like it in all but size."""

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch
from grids import Shape, gated_model
from paper_model import LanguageModel, paper_plan
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import thinrnn
from thinrnn.errors import GateError, PlanError


class Tagger(nn.Module):
    """A frozen table, tied weights, buffers, a shared layer, dropout, hooks, plain attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding.from_pretrained(torch.randn(9, 5), freeze=True, padding_idx=0)
        self.embedding = nn.Embedding(9, 6, padding_idx=0)
        self.rnn = nn.LSTM(11, 6, num_layers=2, batch_first=True, dropout=0.3)
        self.again = self.rnn
        self.norm = nn.BatchNorm1d(6)
        self.back = nn.Linear(6, 6)
        self.decoder = nn.Linear(6, 9)
        self.decoder.weight = self.embedding.weight
        self.back.bias.requires_grad_(False)
        self.register_buffer("calls", torch.tensor(3))
        self.register_buffer("unsaved", torch.ones(2), persistent=False)
        self.note = {"words": [1, 2]}

    def forward(self, x: Tensor) -> Tensor:
        e = torch.cat([self.table(x), self.embedding(x)], -1)
        h = self.rnn(e)[0] + self.again(e.flip(1))[0].flip(1)
        return self.decoder(self.back(self.norm(h.transpose(1, 2)).transpose(1, 2)))


X = torch.arange(8).view(2, 4)


def gated(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = Tagger()
    model(X)
    thinrnn.attach_(model.eval(), thinrnn.find_groups(model, X))
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.linspace(-4, 3, gate.size)
    thinrnn.gates(model)["rnn.l0"].log_alpha = torch.tensor([-9.0, 1, -9, 0, 9, -9])
    return model


def test_what_stays() -> None:
    model = gated()
    small = thinrnn.compact(model)
    assert type(small) is Tagger
    assert thinrnn.verify(model, small, X) < 1e-5
    assert not any("thinrnn" in name for name in small.state_dict())
    for name, parameter in model.named_parameters():
        if not name.startswith(("thinrnn:", "rnn.")):
            same = small.get_parameter(name)
            assert same.requires_grad == parameter.requires_grad, name
            assert same.dtype == parameter.dtype
            assert same.dim() == parameter.dim()
            assert same.is_leaf
    assert not small.table.weight.requires_grad
    assert not small.back.bias.requires_grad
    assert small.decoder.weight is small.embedding.weight
    assert small.again is small.rnn
    assert small.table.padding_idx == small.embedding.padding_idx == 0
    assert small.calls == 3
    assert "unsaved" not in small.state_dict()
    assert torch.equal(small.unsaved, model.unsaved)
    assert small.norm.num_batches_tracked == model.norm.num_batches_tracked
    assert small.note == model.note
    assert small.note is not model.note


def test_the_sizes_are_those_of_the_open_gates() -> None:
    model = gated()
    small = thinrnn.compact(model)
    kept = {name: int(gate.keep.sum()) for name, gate in thinrnn.gates(model).items()}
    assert isinstance(small.rnn, thinrnn.RNNStack)
    assert small.rnn.input_size == small.table.embedding_dim + small.embedding.embedding_dim
    assert small.rnn.hidden_size[0] == kept["rnn.l0"]
    assert small.rnn.dropout == 0.3
    assert small.rnn.batch_first
    assert small.table.embedding_dim == kept["table"]
    assert small.norm.num_features == small.back.in_features == small.rnn.hidden_size[1]
    assert small.decoder.in_features == small.embedding.embedding_dim == small.back.out_features
    assert small.decoder.out_features == small.embedding.num_embeddings == 9
    assert all(size < 6 for size in small.rnn.hidden_size)


@pytest.mark.parametrize("training", [True, False])
def test_the_gated_model_is_left_alone(training: bool) -> None:
    model = gated().train(training)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    ids = {name: id(p) for name, p in model.named_parameters()}
    random = torch.get_rng_state()
    small = thinrnn.compact(model)
    assert torch.equal(torch.get_rng_state(), random)
    assert {name: id(p) for name, p in model.named_parameters()} == ids
    assert all(torch.equal(model.state_dict()[name], old) for name, old in before.items())
    assert all(module.training == training for module in small.modules())
    with torch.no_grad():
        for tensor in [*small.parameters(), *small.buffers()]:
            tensor.zero_()
    assert all(torch.equal(model.state_dict()[name], old) for name, old in before.items())
    assert list(thinrnn.gates(model)) == list(thinrnn.gates(copy.deepcopy(model)))


def test_the_small_model_trains() -> None:
    small = thinrnn.compact(gated()).train()
    optimizer = torch.optim.Adam([p for p in small.parameters() if p.requires_grad], lr=0.02)
    losses = []
    for _ in range(15):
        loss = nn.functional.cross_entropy(small(X).flatten(0, 1), X.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_the_small_model_is_copied_and_pickled_like_any_other() -> None:
    for shape in (Shape(front="nothing", state="zeros"), Shape(kind="GRU", state="given")):
        model, _ = gated_model(shape)
        for gate in thinrnn.gates(model).values():
            gate.log_alpha = torch.linspace(-4, 3, gate.size)
        small = thinrnn.compact(model)
        result = small(*shape.arguments())
        for twin in (copy.deepcopy(small), pickle.loads(pickle.dumps(small))):
            again = twin(*shape.arguments())
            torch.testing.assert_close(first(again), first(result), rtol=0, atol=0)


def first(result: Any) -> Tensor:
    return result[0] if isinstance(result, tuple) else result


def test_open_gates_change_nothing() -> None:
    shape = Shape(layers=2, bidirectional=True)
    model, _ = gated_model(shape)
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.inf
    small = thinrnn.compact(model)
    assert type(small.rnn) is nn.LSTM
    for name, tensor in shape.model().state_dict().items():
        assert torch.equal(small.state_dict()[name], tensor), name


def test_layers_of_one_size_stay_what_they_are() -> None:
    model, _ = gated_model(Shape(kind="GRU", layers=3, bidirectional=True, hidden=5))
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.where(torch.rand(gate.size).argsort() < 2, -9.0, 1.0)
    small = thinrnn.compact(model)
    assert type(small.rnn) is nn.GRU
    assert small.rnn.hidden_size == 3
    assert list(small.state_dict()) == list(
        Shape(kind="GRU", layers=3, bidirectional=True).model().state_dict()
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_types_stay(dtype: torch.dtype) -> None:
    model = gated().to(dtype)
    model.table.float()
    small = thinrnn.compact(model)
    assert small.rnn.l0.weight_hh_l0.dtype == dtype
    assert small.norm.running_mean.dtype == dtype
    assert small.table.weight.dtype == torch.float32
    assert small.calls.dtype == torch.long


def test_hooks_of_the_user_stay() -> None:
    model = gated()
    seen: list[tuple[int, ...]] = []
    model.back.register_forward_hook(lambda m, args, result: seen.append(tuple(args[0].shape)))
    small = thinrnn.compact(model)
    small(X)
    assert seen == [(2, 4, small.back.in_features)]


def test_a_state_that_the_model_keeps_from_its_last_call() -> None:
    class Stateful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(3, 6)
            self.head = nn.Linear(6, 2)
            self.state: Any = None

        def forward(self, x: Tensor) -> Tensor:
            output, self.state = self.rnn(x, self.state)
            return self.head(output)

    torch.manual_seed(0)
    model, x = Stateful().double(), torch.randn(4, 2, 3).double()
    plan = thinrnn.find_groups(model, x)
    thinrnn.attach_(model, plan).eval()
    thinrnn.gates(model)["rnn.l0"].log_alpha = torch.tensor([1.0, -9, 2, -9, 0, 9])
    model(x)
    small = thinrnn.compact(model)
    for _ in range(2):
        torch.testing.assert_close(small(x), model(x))


def test_one_layer_under_two_names_that_becomes_a_stack() -> None:
    small = thinrnn.compact(gated())
    assert isinstance(small.rnn, thinrnn.RNNStack)
    assert small._modules["again"] is small._modules["rnn"]
    assert len(list(small.parameters())) == len(set(map(id, small.parameters())))


class Allocations(TorchDispatchMode):
    """The sizes of all tensors that are made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {a.untyped_storage()._cdata for a in args if isinstance(a, Tensor)}
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.untyped_storage()._cdata not in given:
            self.elements.append(result.numel())
        return result


def test_no_large_copy_is_made() -> None:
    sizes = (60, 50, 40)
    model = thinrnn.attach_(LanguageModel(400, sizes[0], sizes[1:]), paper_plan(*sizes))
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.where(torch.arange(gate.size) % 4 == 0, 1.0, -9.0)
    full = sum(p.numel() for p in model.parameters())
    with Allocations() as made:
        small = thinrnn.compact(model)
    assert sum(p.numel() for p in small.parameters()) < 0.3 * full
    assert max(made.elements) <= 0.25 * 400 * 60  # the embedding, cut
    assert sum(made.elements) < full


def test_sizes_cannot_be_rounded_up_with_neurons_that_shrink_has_removed() -> None:
    model = gated()
    assert thinrnn.compact(model, round_to=4).rnn.hidden_size == 4
    thinrnn.shrink_(model)
    with pytest.warns(UserWarning, match=r"'rnn.l0' cannot be rounded up to 4: shrink_ .* 3 are"):
        small = thinrnn.compact(model, round_to=4)
    assert small.rnn.hidden_size == (3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thinrnn.compact(model)


def test_wrong_arguments() -> None:
    model = gated()
    with pytest.raises(PlanError, match="round_to=0"):
        thinrnn.compact(model, round_to=0)
    with pytest.raises(PlanError, match=r"inputs='all': write 'same' or 'kept'"):
        thinrnn.compact(model, inputs="all")  # type: ignore[arg-type]
    with pytest.raises(GateError, match=r"no gates: call attach_\(model, find_groups\("):
        thinrnn.compact(Tagger())
    with pytest.raises(GateError, match="no gates"):
        thinrnn.compact(thinrnn.compact(model))
    with pytest.raises(PlanError, match="not made by compact"):
        thinrnn.kept_inputs(Tagger())
