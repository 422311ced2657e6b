"""find_groups: what it leaves alone, what it joins, what it refuses, and what it says."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thinrnn
from thinrnn.errors import ExampleError, NoRecurrentLayerError, PlanError


class Tagger(nn.Module):
    """An embedding, a normalised GRU, a head; it counts its calls and keeps its last input."""

    calls = 0

    def __init__(self, hidden: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.rnn = nn.GRU(6, hidden, batch_first=True)
        self.norm = nn.BatchNorm1d(hidden)
        self.head = nn.Linear(hidden, 3)
        self.seen: list[Tensor] = []

    def forward(self, words: Tensor) -> Tensor:
        type(self).calls += 1
        self.seen.append(words)
        h, _ = self.rnn(self.embedding(words))
        return self.head(self.norm(h.transpose(1, 2)).transpose(1, 2))


def names(plan: thinrnn.Plan) -> list[str]:
    return [group.name for group in plan.groups]


def reasons(plan: thinrnn.Plan) -> dict[str, str]:
    return {refusal.group.name: refusal.reason for refusal in plan.refused}


def words(*shape: int) -> Tensor:
    return torch.randint(1, 20, shape)


def test_the_model_is_left_as_it_was() -> None:
    torch.manual_seed(0)
    model, example = Tagger().train(), words(3, 5)
    model(example).sum().backward()
    model.rnn.eval()
    hook = model.head.register_forward_hook(lambda module, args, result: None)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    numpy_state = np.random.get_state()[1].tolist()  # type: ignore[index]
    thinrnn.find_groups(model, example)
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    now = [p.grad for p in model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(grads, now, strict=True))
    assert [m.training for m in model.modules()] == [True, True, False, True, True]
    assert list(model.head._forward_hooks) == [hook.id]
    assert len(model.seen) == 1
    assert model.norm.num_batches_tracked == 1
    assert torch.equal(torch_state, torch.get_rng_state())
    assert python_state == random.getstate()
    assert numpy_state == np.random.get_state()[1].tolist()  # type: ignore[index]
    assert torch.get_default_dtype() == torch.float32
    assert nn.GRU.forward.__qualname__ == "GRU.forward"


def test_the_example_is_left_as_it_was() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(4, 6, batch_first=True)
            self.out = nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            x -= x.mean(1, keepdim=True)
            return self.out(self.rnn(x)[0])

    x = torch.randn(3, 5, 4, dtype=torch.float64)
    before = x.clone()
    plan = thinrnn.find_groups(InPlace().double(), x)
    assert torch.equal(x, before)
    assert names(plan) == ["x", "rnn.l0"]


def test_the_code_runs_at_most_sixty_times() -> None:
    class LanguageModel(nn.Module):
        calls = 0

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(500, 256)
            self.lstm = nn.LSTM(256, 256, 2)
            self.decoder = nn.Linear(256, 500)

        def forward(self, x: Tensor, state: Any = None) -> Any:
            type(self).calls += 1
            out, state = self.lstm(self.embedding(x), state)
            return self.decoder(out), state

    plan = thinrnn.find_groups(LanguageModel(), torch.randint(500, (9, 4)))
    assert names(plan) == ["embedding", "lstm.l0", "lstm.l1"]
    assert LanguageModel.calls <= 60


def test_layers_are_replayed_not_run() -> None:
    class Counting(nn.LSTM):
        runs = 0

    def count(*args: Any, **kwargs: Any) -> Any:
        Counting.runs += 1
        return original(*args, **kwargs)

    model = nn.Sequential(nn.Linear(5, 6), Counting(6, 64))
    original = torch._VF.lstm
    torch._VF.lstm = count  # type: ignore[attr-defined]
    try:
        thinrnn.find_groups(model, torch.randn(7, 3, 5))
    finally:
        torch._VF.lstm = original  # type: ignore[attr-defined]
    assert 0 < Counting.runs < 16  # mostly those of the trial cuts


def test_no_recurrent_layer() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(NoRecurrentLayerError, match=r"nn\.LSTM.*the model has: Linear, ReLU"):
        thinrnn.find_groups(model, torch.randn(2, 3))


def test_an_example_that_does_not_run() -> None:
    with pytest.raises(ExampleError) as caught:
        thinrnn.find_groups(Tagger(), torch.randn(3, 5))
    message = str(caught.value)
    assert "(3, 5)" in message
    assert "test_find.py" in message and "self.rnn(self.embedding(words))" in message
    assert "dict of keyword arguments" in message


def test_an_example_with_an_argument_too_many() -> None:
    with pytest.raises(ExampleError, match="positional arguments"):
        thinrnn.find_groups(Tagger(), (words(3, 5), words(3, 5)))


def test_gates_are_there_already() -> None:
    model = Tagger()
    thinrnn.attach_(model, thinrnn.find_groups(model, words(3, 5)))
    with pytest.raises(PlanError, match="gates already"):
        thinrnn.find_groups(model, words(3, 5))
    with pytest.raises(PlanError, match="gates already"):
        thinrnn.find_groups(nn.Sequential(model), words(3, 5))


def test_a_lazy_layer() -> None:
    model = nn.Sequential(nn.GRU(5, 6), First(), nn.LazyLinear(2))
    with pytest.raises(ExampleError, match=r"lazy layers.*call it once"):
        thinrnn.find_groups(model, torch.randn(4, 3, 5))


class First(nn.Module):
    def forward(self, pair: tuple[Tensor, Any]) -> Tensor:
        return pair[0]


def test_values_that_come_from_nowhere() -> None:
    outside = np.random.default_rng(0)

    class Restless(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(4, 6)
            self.out = nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.rnn(x)[0] + outside.standard_normal())

    with pytest.raises(ExampleError, match=r"other values each time.*what 'out' reads"):
        thinrnn.find_groups(Restless(), torch.randn(5, 3, 4))


def test_a_size_in_the_code_is_refused_with_its_line() -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(4, 6, batch_first=True, bidirectional=True)
            self.out = nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.rnn(x)[0].view(x.size(0), -1, 2, 6)
            return self.out(h.sum(2))

    plan = thinrnn.find_groups(Split(), torch.randn(3, 5, 4))
    assert names(plan) == ["x"]
    reason = reasons(plan)["rnn.l0+rnn.l0_reverse"]
    assert "relies on its size" in reason
    assert "test_find.py" in reason and "view(x.size(0), -1, 2, 6)" in reason


class SizesInAttributes(nn.Module):
    """Both directions side by side in `both`, and an unrelated number that happens to agree."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.both, self.classes, self.scale = 6, 12, 6, 6
        self.rnn = nn.GRU(4, self.hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(self.both, self.classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.rnn(x)[0].reshape(-1, self.both) / self.scale
        return self.out(h).view(x.size(0), -1, self.classes)


def test_sizes_in_attributes_are_set_where_the_code_needs_them(tmp_path: Path) -> None:
    model, x = SizesInAttributes().double(), torch.randn(3, 5, 4, dtype=torch.float64)
    plan = thinrnn.find_groups(model, x)
    group = plan["rnn.l0+rnn.l0_reverse"]
    assert group.sets == (thinrnn.SizeAttribute("both", 2),)
    thinrnn.attach_(model, plan)
    thinrnn.gates(model)[group.name].log_alpha = torch.tensor([9.0, 0.5, -9, 0, -9, -9])
    small = thinrnn.compact(model.eval())
    assert (small.hidden, small.both, small.classes, small.scale) == (6, 6, 6, 6)
    assert model.both == 12
    assert thinrnn.verify(model, small, x) < 1e-10
    loaded = thinrnn.load_(SizesInAttributes().double(), thinrnn.save(small, tmp_path))
    assert loaded.both == 6
    assert torch.equal(loaded(x), small(x))
    thinrnn.shrink_(model)
    assert model.both == 6
    assert thinrnn.verify(model, thinrnn.compact(model), x) < 1e-10
    again = thinrnn.find_groups(small, x)
    assert again[group.name].size == 3


@pytest.mark.parametrize("kind", ["module", "function", "both"])
def test_tied_weights_are_one_group(kind: str) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(20, 8)
            self.rnn = nn.LSTM(8, 8)
            self.decoder = nn.Linear(8, 20, bias=False)
            self.decoder.weight = self.embedding.weight

        def forward(self, x: Tensor) -> Any:
            h, _ = self.rnn(self.embedding(x))
            by_module = self.decoder(h)
            by_function = F.linear(h, self.embedding.weight)
            return {"module": by_module, "function": by_function, "both": (by_module, by_function)}[
                kind
            ]

    model, example = Tied().double(), words(5, 3)
    plan = thinrnn.find_groups(model, example)
    assert names(plan) == ["embedding+rnn.l0"]
    assert "shared with embedding, which needs all" in next(iter(reasons(plan).values()))
    thinrnn.attach_(model, plan)
    thinrnn.gates(model)["embedding+rnn.l0"].log_alpha = torch.tensor([-9.0, 1, 0, 2] * 2)
    small = thinrnn.compact(model)
    assert small.decoder.weight is small.embedding.weight
    assert small.embedding.weight.shape == (20, 6)
    thinrnn.verify(model, small, example)


def test_a_matrix_that_reads_and_makes_the_same_neurons() -> None:
    class Square(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(4, 7, batch_first=True)
            self.first = nn.Linear(7, 7)
            self.second = nn.Linear(7, 7)
            self.second.weight = self.first.weight
            self.out = nn.Linear(7, 2)

        def forward(self, x: Tensor) -> Tensor:
            h, _ = self.rnn(x)
            return self.out(torch.tanh(self.second(torch.tanh(self.first(h)))))

    model, example = Square().double(), torch.randn(3, 5, 4).double()
    plan = thinrnn.find_groups(model, example)
    assert names(plan) == ["x", "rnn.l0+first+second"]
    thinrnn.attach_(model, plan)
    thinrnn.gates(model)["rnn.l0+first+second"].log_alpha = torch.tensor([-9.0, 1, 0, 2, -9, 1, 1])
    thinrnn.verify(model, thinrnn.compact(model), example)


class Attention(nn.Module):
    """Scores by a raw vector; the sequence itself goes to the head."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(5, 8, batch_first=True)
        self.scale = nn.Parameter(torch.rand(8) + 0.5)
        self.v = nn.Parameter(torch.randn(8))
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h, _ = self.rnn(x)
        h = h * self.scale
        weights = torch.softmax(torch.tanh(h) @ self.v, 1)
        return self.out((weights.unsqueeze(-1) * h).sum(1))


def test_raw_readers_and_factors_are_found() -> None:
    model, example = Attention().double(), torch.randn(3, 6, 5).double()
    plan = thinrnn.find_groups(model, example)
    parameters = {s.parameter for s in plan["rnn.l0"].slices}
    assert {"scale", "v", "out.weight", "rnn.weight_hh_l0"} <= parameters
    thinrnn.attach_(model, plan)
    thinrnn.gates(model)["rnn.l0"].log_alpha = torch.tensor([-9.0, 1, 0, 2] * 2)
    small = thinrnn.compact(model)
    assert small.scale.shape == small.v.shape == (6,)
    thinrnn.verify(model, small, example)


def test_a_layer_that_only_training_calls_is_cut_along() -> None:
    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(4, 6, batch_first=True)
            self.out = nn.Linear(6, 2)
            self.extra = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Any:
            h, _ = self.rnn(x)
            return (self.out(h), self.extra(h)) if self.training else self.out(h)

    model, example = Auxiliary(), torch.randn(3, 5, 4)
    plan = thinrnn.find_groups(model, example)
    assert plan["rnn.l0"].owners("read") == ["rnn", "out", "extra"]
    thinrnn.attach_(model, plan).train()
    thinrnn.gates(model)["rnn.l0"].log_alpha = torch.tensor([-9.0, 1, 0, 2, -9, 1])
    thinrnn.shrink_(model)
    assert model(example)[1].shape == (3, 5, 3)


def test_what_the_example_does_not_reach_is_named() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(4, 6, batch_first=True)
            self.short, self.long = nn.Linear(6, 2), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            h, _ = self.rnn(x)
            return self.long(h) if x.size(1) > 100 else self.short(h)

    plan = thinrnn.find_groups(Branches(), torch.randn(3, 5, 4))
    assert reasons(plan)["long"] == "the example never calls it"


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize("zeros", [False, True])
def test_tiny_examples_show_as_much_as_large_ones(shape: tuple[int, int], zeros: bool) -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.GRU(4, 9, batch_first=True), nn.GRU(4, 9, batch_first=True)
            self.c = nn.Linear(4, 9)
            self.out = nn.Linear(9, 2)

        def forward(self, x: Tensor) -> Tensor:
            both = torch.maximum(self.a(x)[0], self.b(x)[0])
            return self.out(F.relu(both) * F.relu(self.c(x)))

    example = torch.zeros(*shape, 4) if zeros else torch.randn(*shape, 4)
    plan = thinrnn.find_groups(Gated(), example)
    assert names(plan) == ["x", "a.l0+b.l0+c"]


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("kind", ["norm", "softmax", "mean"])
def test_few_neurons_that_are_mixed_are_refused(size: int, kind: str) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.GRU(3, size, batch_first=True), nn.LayerNorm(size)
            self.second, self.out = nn.GRU(size, 5, batch_first=True), nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            h, _ = self.first(x)
            h = {"norm": self.norm(h), "softmax": h.softmax(-1), "mean": h - h.mean(-1, True)}[kind]
            return self.out(self.second(h)[0])

    plan = thinrnn.find_groups(Mixed(), torch.randn(4, 6, 3))
    assert names(plan) == ["x", "second.l0"]
    assert "mixed with others" in reasons(plan)["first.l0"]


@pytest.mark.parametrize("kind", ["args", "kwargs"])
def test_a_state_goes_back_in_where_forward_takes_anything(kind: str) -> None:
    class Anything(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.rnn = nn.Linear(3, 4), nn.LSTM(4, 6, 2)
            self.out = nn.Linear(6, 2)

    class Positional(Anything):
        def forward(self, *args: Any) -> Any:
            h, state = self.rnn(self.first(args[0]), *args[1:])
            return self.out(h), state

    class Named(Anything):
        def forward(self, **kwargs: Any) -> Any:
            h, state = self.rnn(self.first(kwargs["x"]), kwargs.get("state"))
            return self.out(h), state

    x = torch.randn(5, 3, 3)
    plan = thinrnn.find_groups(*((Positional(), x) if kind == "args" else (Named(), {"x": x})))
    assert {"first", "rnn.l0", "rnn.l1"} <= set(names(plan))


def test_a_model_for_float32_alone() -> None:
    class Strict(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(4, 6, 2, batch_first=True)
            self.out = nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            assert x.dtype == torch.float32
            return self.out(self.rnn(x)[0])

    model, example = Strict(), torch.randn(3, 5, 4)
    plan = thinrnn.find_groups(model, example)
    assert names(plan) == ["x", "rnn.l0", "rnn.l1"]
    thinrnn.attach_(model, plan)
    assert thinrnn.verify(model, thinrnn.compact(model), example) < 1e-5


def test_another_default_device_does_not_matter() -> None:
    model, example = Tagger(), words(3, 5)
    with torch.device("meta"):
        plan = thinrnn.find_groups(model, example)
    assert names(plan) == ["embedding", "rnn.l0+norm"]


def test_a_compiled_model() -> None:
    compiled = torch.compile(Tagger(), backend="eager")
    with pytest.raises(PlanError, match="compiled"):
        thinrnn.find_groups(compiled, words(3, 5))


def test_a_wrapped_model() -> None:
    with pytest.raises(PlanError, match=r"wrapped in DataParallel: give .* model\.module"):
        thinrnn.find_groups(nn.DataParallel(Tagger()), words(3, 5))


@pytest.mark.extended
def test_one_hundred_layers() -> None:
    class Deep(nn.Module):
        calls = 0

        def __init__(self) -> None:
            super().__init__()
            self.inp = nn.Linear(4, 6)
            self.norms = nn.ModuleList(nn.LayerNorm(6) for _ in range(33))
            self.rnns = nn.ModuleList(nn.GRU(6, 5, batch_first=True) for _ in range(33))
            self.backs = nn.ModuleList(nn.Linear(5, 6) for _ in range(33))

        def forward(self, x: Tensor) -> Tensor:
            type(self).calls += 1
            x = self.inp(x)
            for norm, rnn, back in zip(self.norms, self.rnns, self.backs, strict=True):
                x = x + back(rnn(norm(x))[0])
            return x.mean(1)

    plan = thinrnn.find_groups(Deep(), torch.randn(4, 6, 4))
    assert names(plan) == ["x", *(f"rnns.{i}.l0" for i in range(33))]
    assert Deep.calls < 10 * 100


def test_states_that_the_model_does_not_return_are_refused() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.GRU(4, 5)), torch.zeros(6, 2, 3)
    with pytest.raises(PlanError, match=r"states=\['2'\]: the model returns '0', '1'"):
        thinrnn.find_groups(model, x, states=["2"])


def test_an_output_in_the_shape_of_an_input_is_no_state() -> None:
    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(6, 8)
            self.out = nn.Linear(8, 6)

        def forward(self, x: Tensor, noise: Tensor) -> Tensor:
            return self.out(self.rnn(x + noise)[0])

    plan = thinrnn.find_groups(Denoiser(), (torch.randn(5, 2, 6), torch.randn(5, 2, 6)))
    assert reasons(plan)["out"] == "returned to the caller"
    assert not any(group.states for group in plan)
