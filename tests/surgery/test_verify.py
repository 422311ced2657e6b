"""verify: equal models pass, others are refused with the place where they part."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thinrnn
from thinrnn import Group, Plan, Slice
from thinrnn.errors import HardCodedSizeError, VerifyError
from thinrnn.timing import Clock


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Linear(5, 7)
        self.rnn = nn.LSTM(7, 8, 2, batch_first=True)
        self.mid = nn.Linear(8, 6)
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor, state: Any = None) -> Any:
        h, state = self.rnn(torch.tanh(self.inp(x)), state)
        return self.out(torch.relu(self.mid(h))), state


def pruned(model: nn.Module, example: Any, **options: Any) -> tuple[nn.Module, nn.Module]:
    """Return a gated model, a third of its gates closed, and the small one."""
    thinrnn.attach_(model, thinrnn.find_groups(model, example))
    generator = torch.Generator().manual_seed(0)
    for i, gate in enumerate(thinrnn.gates(model).values()):
        soft = torch.rand(gate.size, generator=generator) * 2 - 1
        closed = torch.randperm(gate.size, generator=generator) < gate.size // 3 + i % 2
        gate.log_alpha = torch.where(closed, -9.0, soft)
    return model, thinrnn.compact(model, **options)


def stack() -> tuple[nn.Module, nn.Module, Tensor]:
    torch.manual_seed(0)
    example = torch.randn(4, 6, 5, dtype=torch.float64)
    return *pruned(Stack().double(), example), example


def test_returns_the_largest_difference() -> None:
    gated, small, example = stack()
    assert thinrnn.verify(gated, small, example) < 1e-12
    with torch.no_grad():
        small.out.bias[1] += 1e-3
    assert thinrnn.verify(gated, small, example, tolerance=0.1) == pytest.approx(1e-3)


@pytest.mark.parametrize("layer", ["inp", "rnn", "mid", "out"])
def test_names_the_first_module_that_differs(layer: str) -> None:
    gated, small, example = stack()
    with torch.no_grad():
        for parameter in small.get_submodule(layer).parameters():
            parameter += 0.01
    with pytest.raises(VerifyError, match=f"the first module that differs is '{layer}'"):
        thinrnn.verify(gated, small, example)


def test_leaves_both_models_as_they_were() -> None:
    gated, small, example = stack()
    gated.train()
    small.train()
    before = [{k: v.clone() for k, v in m.state_dict().items()} for m in (gated, small)]
    random_state = torch.get_rng_state()
    thinrnn.verify(gated, small, example)
    for model, state in zip((gated, small), before, strict=True):
        assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())
        assert all(module.training for module in model.modules())
    assert torch.equal(random_state, torch.get_rng_state())


def test_states_are_compared_on_the_kept_neurons() -> None:
    gated, small, example = stack()
    assert thinrnn.verify(gated, small, example) < 1e-12
    assert isinstance(small.rnn, thinrnn.RNNStack)
    with torch.no_grad():  # the forget gate of a cell, which is in the state alone at the last step
        small.rnn.l1.bias_hh_l0[small.rnn.l1.hidden_size] += 1
    with pytest.raises(VerifyError, match="'rnn'"):
        thinrnn.verify(gated, small, example)


def test_states_of_a_model_that_has_shrunk() -> None:
    gated, _, example = stack()
    thinrnn.shrink_(gated)
    for gate in thinrnn.gates(gated).values():
        gate.log_alpha.data[-1] = -9.0
    assert thinrnn.verify(gated, thinrnn.compact(gated), example) < 1e-12


class TwoInputs(nn.Module):
    """Two sequences through one layer, a mask, and static features in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(6, 7, batch_first=True)
        self.static = nn.Linear(4, 5)
        self.out = nn.Linear(12, 2)

    def forward(self, a: Tensor, b: Tensor, more: dict[str, Tensor]) -> Tensor:
        both = self.rnn(a)[0][:, -1] + self.rnn(b)[0][:, -1]
        return self.out(torch.cat([both, self.static(more["static"])], -1))


def test_small_models_that_want_the_kept_inputs_only() -> None:
    torch.manual_seed(0)
    example = (torch.randn(3, 5, 6), torch.randn(3, 4, 6), {"static": torch.randn(3, 4)})
    gated, small = pruned(TwoInputs(), example, inputs="kept")
    kept = thinrnn.kept_inputs(small)
    assert sorted(kept) == ["a+b", "more.static"]
    assert thinrnn.verify(gated, small, example) < 1e-6
    a, b, more = example
    fewer = (
        a[..., kept["a+b"]],
        b[..., kept["a+b"]],
        {"static": more["static"][:, kept["more.static"]]},
    )
    assert torch.allclose(small.eval()(*fewer), gated.eval()(*example), atol=1e-6)


def test_features_that_the_code_makes_are_picked_where_they_are_read() -> None:
    class OneHot(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(9, 6, batch_first=True)
            self.out = nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            one_hot = nn.functional.one_hot(x, 9).to(self.out.weight.dtype)
            return self.out(self.rnn(one_hot)[0])

    example = torch.randint(9, (3, 5))
    gated, small = pruned(OneHot(), example, inputs="kept")
    assert small.rnn.input_size < 9
    assert thinrnn.verify(gated, small, example) < 1e-6


class Viewed(nn.Module):
    """Relies on its hidden size, so that find_groups would refuse the group."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 6, batch_first=True)
        self.out = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.rnn(x)[0]
        return self.out(h.reshape(-1, 6)), h.mean()


def by_hand(*more: Slice) -> Plan:
    rows = ((0, 0, 6), (6, 0, 6), (12, 0, 6))
    made = [f"rnn.{name}_l0" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    slices = [Slice(name, 0, "produce", rows) for name in made]
    slices.append(Slice("rnn.weight_hh_l0", 1, "read", ((0, 0, 6),)))
    return Plan((Group("rnn.l0", 6, (*slices, *more)),))


def test_a_size_in_the_code_is_named_with_its_line() -> None:
    model = Viewed()
    thinrnn.attach_(model, by_hand(Slice("out.weight", 1, "read", ((0, 0, 6),))))
    thinrnn.gates(model)["rnn.l0"].log_alpha = torch.tensor([-9.0, 1, 1, 1, 1, 1])
    with pytest.raises(HardCodedSizeError) as caught:
        thinrnn.verify(model, thinrnn.compact(model), torch.randn(2, 5, 4))
    message = str(caught.value)
    assert "test_verify.py" in message and "h.reshape(-1, 6)" in message
    assert "plan.without(...)" in message


def test_a_returned_neuron_is_named_by_its_output() -> None:
    class Returned(Viewed):
        def forward(self, x: Tensor) -> Any:
            h = self.rnn(x)[0]
            return self.out(h), h

    model = Returned()
    thinrnn.attach_(model, by_hand(Slice("out.weight", 1, "read", ((0, 0, 6),))))
    thinrnn.gates(model)["rnn.l0"].log_alpha = torch.tensor([-9.0, 1, 1, 1, 1, 1])
    with pytest.raises(VerifyError, match=r"output 1 has shape \(2, 5, 5\).*\(2, 5, 6\)"):
        thinrnn.verify(model, thinrnn.compact(model), torch.randn(2, 5, 4))


def test_a_forgotten_reader_is_found() -> None:
    class Skipped(Viewed):
        def __init__(self) -> None:
            super().__init__()
            self.v = nn.Parameter(torch.randn(6))

        def forward(self, x: Tensor) -> Tensor:
            h = self.rnn(x)[0]
            return self.out(h) + (h * self.v[: h.size(-1)]).sum(-1, keepdim=True)

    model = Skipped()
    thinrnn.attach_(model, by_hand(Slice("out.weight", 1, "read", ((0, 0, 6),))))
    thinrnn.gates(model)["rnn.l0"].log_alpha = torch.tensor([-9.0, 1, 1, 1, 1, 1])
    with pytest.raises(VerifyError, match=r"declare it with plan\.using"):
        thinrnn.verify(model, thinrnn.compact(model), torch.randn(2, 5, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_is_judged_by_what_folding_rounds(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    example = torch.randn(4, 6, 5).to(dtype)
    gated, small = pruned(Stack().to(dtype), example)
    assert 0 < thinrnn.verify(gated, small, example) < 3e-2


def test_not_a_number_is_equal_to_itself_only() -> None:
    gated, small, example = stack()
    example[0, 0, 0] = float("nan")
    thinrnn.verify(gated, small, example)
    with torch.no_grad():
        small.out.bias[0] = float("nan")
    with pytest.raises(VerifyError):
        thinrnn.verify(gated, small, torch.randn(4, 6, 5, dtype=torch.float64))


def test_a_small_model_that_is_not_faster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Sequential(nn.LSTM(6, 8)), torch.randn(3, 2, 6)
    thinrnn.attach_(model, thinrnn.find_groups(model, x))
    small = thinrnn.compact(model)
    found = {"dense": 1.0, "small": 0.5}
    monkeypatch.setattr(Clock, "round", lambda clock: found)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        thinrnn.verify(model, small, x, speed=True)
    found["small"] = 1.5
    with pytest.warns(UserWarning, match=r"not faster here: 1.5 ms .* and 1 ms .*export"):
        thinrnn.verify(model, small, x, speed=True)
    monkeypatch.undo()
    wide = nn.Sequential(nn.LSTM(6, 8))
    thinrnn.attach_(wide, thinrnn.find_groups(wide, x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert thinrnn.verify(wide, thinrnn.compact(wide), x, speed=True) < 1e-5
