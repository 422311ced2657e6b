"""Layers whose weights something computes before each call: weight norm, weight drop."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import thinrnn

HOOK = torch.nn.utils.weight_norm
NEW = parametrizations.weight_norm
pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated", "ignore:all .* are")
Norm = Callable[..., Any]


def plain(module: nn.Module, **_: Any) -> nn.Module:
    return module


class Speech(nn.Module):
    """Convolutions, a recurrent layer and an output layer, each under weight norm."""

    def __init__(self, norm: Norm, dim: int | None, cell: str, back: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = norm(nn.Conv1d(4, 6, 3, padding=1), dim=dim)
        self.rnn = {"LSTM": nn.LSTM, "GRU": nn.GRU}[cell](6, 8, batch_first=True)
        for name in ("weight_ih_l0", "weight_hh_l0")[int(back) :]:
            self.rnn = norm(self.rnn, name=name, dim=0) if norm is not plain else self.rnn
        self.up = norm(nn.ConvTranspose1d(8, 6, 2, stride=2), dim=dim)
        self.cell = nn.GRUCell(6, 5)
        self.head = norm(nn.Linear(5, 3), dim=dim)

    def forward(self, x: Tensor, hx: Any = None) -> Tensor:  # (B, T, 4)
        x = self.conv(x.transpose(1, 2)).relu().transpose(1, 2)
        x = self.up(self.rnn(x, hx)[0].transpose(1, 2)).tanh()
        h = x.new_zeros(len(x), 5)
        for step in x.unbind(2):
            h = self.cell(step, h)
        return self.head(h)


def without_norm(model: nn.Module) -> nn.Module:
    """Give a model of its own plain weights."""
    for module in list(model.modules()):
        for hook in list(module._forward_pre_hooks.values()):
            torch.nn.utils.remove_weight_norm(module, hook.name)
        if parametrize.is_parametrized(module):
            for name in list(module.parametrizations):
                parametrize.remove_parametrizations(module, name)
    return model


def set_gates(model: nn.Module, seed: int, *, closed: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    for gate in thinrnn.gates(model).values():
        soft = torch.randn(gate.size, generator=generator).double()
        is_closed = torch.rand(gate.size, generator=generator) < closed
        gate.log_alpha = torch.where(is_closed, -9.0, soft)


@settings(max_examples=max(3, settings.default.max_examples // 16))
@given(
    st.sampled_from([HOOK, NEW]),
    st.sampled_from([0, 1, None]),
    st.sampled_from(["LSTM", "GRU"]),
    st.booleans(),
    st.sampled_from([0.5, 1.0]),
)
def test_weight_norm_stays_and_is_exact(
    norm: Norm, dim: int | None, cell: str, back: bool, closed: float
) -> None:
    """With all gates of a group closed as well, where rows of zeros have no direction."""
    model = Speech(norm, dim, cell, back).double().eval()
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    model(x)  # the hooks leave weights with a history behind
    plan = thinrnn.find_groups(model, x)
    assert [group.name for group in plan] == ["x", "conv", "rnn.l0", "up", "cell"]
    reference = without_norm(Speech(norm, dim, cell, back).double().eval())
    thinrnn.attach_(reference, thinrnn.find_groups(reference, x))
    thinrnn.attach_(model, plan)
    for one in (model, reference):
        set_gates(one, 1, closed=closed)
    torch.testing.assert_close(model(x), reference(x), rtol=1e-10, atol=1e-10)
    alone = x.transpose(1, 2)
    torch.testing.assert_close(model.conv(alone), reference.conv(alone), rtol=1e-10, atol=1e-10)
    small = thinrnn.compact(model)
    assert thinrnn.verify(model, small, x) < 1e-10
    assert any(name.endswith(("weight_g", "original0")) for name, _ in small.named_parameters())

    if closed < 1:
        before = model(x)
        thinrnn.shrink_(model)
        torch.testing.assert_close(model(x), before, rtol=1e-10, atol=1e-10)


def test_gradients_under_weight_norm_are_those_of_plain_weights() -> None:
    gradients = []
    for norm in (HOOK, NEW, plain):
        model = Speech(norm, 0, "LSTM", back=False).double()
        x = torch.ones(2, 3, 4, dtype=torch.float64).cumsum(1).sin()
        thinrnn.attach_(model, thinrnn.find_groups(model, x))
        set_gates(model, 2, closed=0.0)
        torch.manual_seed(1)
        model(x).square().sum().backward()
        gradients.append([gate.log_alpha.grad for gate in thinrnn.gates(model).values()])
    for found in gradients[:2]:
        for one, expected in zip(found, gradients[2], strict=True):
            torch.testing.assert_close(one, expected)


@pytest.mark.parametrize("norm", [HOOK, NEW])
def test_it_trains_shrinks_and_loads_under_weight_norm(norm: Norm, tmp_path: Path) -> None:
    model, x = Speech(norm, 0, "LSTM", back=False), torch.randn(2, 3, 4)
    thinrnn.attach_(model, thinrnn.find_groups(model, x))
    target = thinrnn.Target(model, params=0.5, steps=8)
    optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-2, gate_lr=1.0))
    for _ in range(12):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        target.step()
        thinrnn.shrink_(model, optimizer)
    small = thinrnn.compact(model)
    thinrnn.verify(model, small, x)
    assert thinrnn.count(small).params <= target.limit["params"]
    loaded = thinrnn.load_(Speech(norm, 0, "LSTM", back=False), thinrnn.save(small, tmp_path))
    assert torch.equal(loaded.eval()(x), small.eval()(x))
    optimizer = torch.optim.SGD(loaded.parameters(), lr=0.1)  # and trains on
    before = loaded.head(torch.ones(loaded.head.in_features)).detach()
    loaded(x).square().mean().backward()
    optimizer.step()
    assert not torch.equal(loaded.head(torch.ones(loaded.head.in_features)), before)


class WeightDrop(nn.Module):
    """As in fastai: the raw weight is in the module around, or, as in AWD-LSTM, in the LSTM."""

    def __init__(self, module: nn.Module, names: tuple[str, ...], inside: bool) -> None:
        super().__init__()
        self.module, self.names = module, names
        self.home = (lambda: module) if inside else (lambda: self)
        for name in names:
            weight = getattr(module, name)
            del module._parameters[name]
            self.home().register_parameter(f"{name}_raw", nn.Parameter(weight.data))
            setattr(module, name, weight.detach().clone())

    def forward(self, *args: Any) -> Any:
        for name in self.names:
            raw = getattr(
                self.module if hasattr(self.module, f"{name}_raw") else self, f"{name}_raw"
            )
            setattr(self.module, name, F.dropout(raw, 0.5) if self.training else raw.clone())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.module(*args)


class AWD(nn.Module):
    def __init__(self, inside: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.emb = nn.Embedding(20, 6)
        sizes = ((6, 8), (8, 6))
        self.rnns = nn.ModuleList(
            WeightDrop(nn.LSTM(a, b), ("weight_hh_l0",), inside) for a, b in sizes
        )
        self.out = nn.Linear(6, 20)
        self.out.weight = self.emb.weight

    def forward(self, tokens: Tensor, states: Any = (None, None)) -> Any:
        x, new = self.emb(tokens), []
        for rnn, state in zip(self.rnns, states, strict=True):
            x, state = rnn(x, state)
            new.append(state)
        return self.out(x), new


@pytest.mark.parametrize("inside", [True, False])
def test_weight_drop_is_cut_where_the_raw_weights_are(inside: bool, tmp_path: Path) -> None:
    model, tokens = AWD(inside), torch.randint(20, (7, 3))
    model(tokens)[0].sum().backward()  # weights with a history
    plan = thinrnn.find_groups(model, tokens)
    names = [g.name for g in plan]
    assert len(names) == 2 and "rnns.0.module.l0" in names, str(plan)
    thinrnn.attach_(model, plan)
    model(tokens)[0].square().sum().backward()
    assert all(gate.log_alpha.grad.abs().sum() > 0 for gate in thinrnn.gates(model).values())
    set_gates(model, 0, closed=0.5)
    small = thinrnn.compact(model.double()).eval()
    assert thinrnn.verify(model, small, tokens) < 1e-10
    outputs = []
    for one in (model.eval(), small):
        first, states = one(tokens)
        outputs.append(torch.cat([first, one(tokens, states)[0]]))
    torch.testing.assert_close(*outputs, rtol=1e-10, atol=1e-10)
    raw = [p for n, p in small.named_parameters() if n.endswith("_raw")]
    assert [p.shape[0] for p in raw] == [4 * p.shape[1] for p in raw] and raw[0].shape[1] < 8
    folder = thinrnn.save(small, tmp_path)
    loaded = thinrnn.load_(AWD(inside).double(), folder)
    assert torch.equal(loaded.eval()(tokens)[0], small.eval()(tokens)[0])
    loaded.train()(tokens)[0].sum().backward()
    assert all(p.grad is not None for n, p in loaded.named_parameters() if n.endswith("_raw"))


def test_what_cannot_be_cut_is_refused_by_name() -> None:
    x = torch.randn(5, 2, 3)
    layers = [NEW(nn.Linear(3, 4)), NEW(nn.GRU(4, 5), "weight_ih_l0")]
    with pytest.raises(thinrnn.CalibrationError, match=r"under weight norm, remove it first"):
        thinrnn.prune(nn.Sequential(*layers), [x, x], params=0.5)
    for make, wrap, reason in (
        (lambda: nn.LSTM(3, 8), torch.nn.utils.spectral_norm, "spectral norm divides"),
        (lambda: nn.LSTM(3, 8), parametrizations.spectral_norm, "remove_parametrizations"),
        (lambda: nn.LSTM(3, 8, num_layers=2), NEW, "one module for each layer"),
    ):
        model = nn.Sequential(nn.Linear(3, 3), nn.Identity())
        wrapped = wrap(make(), "weight_hh_l0")
        model[1] = wrapped
        with pytest.raises(thinrnn.errors.NoRecurrentLayerError, match=reason):
            thinrnn.find_groups(model, x)
