"""A replay of a tape shows what a run of the same code would, or says that it cannot."""

import io
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import thinrnn
from thinrnn._discovery import progress
from thinrnn._discovery.probe import Probe
from thinrnn._discovery.tape import Tape, Unlike

Operation = Callable[[Tensor, Tensor], Tensor]


def write_rows(a: Tensor, b: Tensor) -> Tensor:
    out = torch.zeros_like(a)
    for i in range(len(a)):
        out[i] = a[i] * b[-1 - i]
    return out


def add_in_place(a: Tensor, b: Tensor) -> Tensor:
    c = a.clone()
    view = c.t()
    c += b
    view.mul_(2.0)
    return c + a


OPERATIONS: list[Operation] = [
    lambda a, b: torch.relu(a) - b,
    lambda a, b: torch.cat([a[:2], b[2:]]),
    lambda a, b: torch.stack(torch.chunk(a, 2, 0)).reshape(4, 4) @ b,
    lambda a, b: a.softmax(-1) * b.transpose(0, 1),
    lambda a, b: torch.where(a > 0, a, b.sin()),
    lambda a, b: b.index_select(0, torch.tensor([1, 0, 3, 2])),
    write_rows,
    add_in_place,
]


@given(
    st.lists(
        st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 9), st.integers(0, 9)), min_size=1
    ),
    st.integers(0, 2),
)
def test_a_replay_is_a_run(steps: list[tuple[Operation, int, int]], change: int) -> None:
    def code(values: list[Tensor]) -> list[Tensor]:
        values = list(values)
        for operation, a, b in steps:
            values.append(operation(values[a % len(values)], values[b % len(values)]).tanh())
        return values

    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(4, 4, generator=generator, dtype=torch.float64) for _ in range(3)]
    tape = Tape()
    with tape:
        recorded = code(given)
        notes: dict[int, Tensor] = {}
        for i, value in enumerate(recorded):
            tape.note([value], lambda told, new, i=i: told.update({i: new[0]}))  # type: ignore[misc]
    assert tape.is_whole
    new = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    now = tape.replay({id(given[change]): new}, notes)
    expected = code([new if i == change else value for i, value in enumerate(given)])
    for i, (old, value) in enumerate(zip(recorded, expected, strict=True)):
        assert torch.equal(now.get(id(old), old), value)
        assert torch.equal(notes.get(i, old), value)


@pytest.mark.parametrize(
    "code",
    [
        lambda x: x if float(x.sum()) > 0 else -x,
        lambda x: x[x > 0],
        lambda x: x + torch.rand_like(x),
    ],
)
def test_what_python_reads_is_no_replay(code: Callable[[Tensor], Tensor]) -> None:
    x = torch.ones(3)
    tape = Tape()
    with tape:
        code(x)
    with pytest.raises(Unlike):
        tape.replay({id(x): -x}, None)


def test_writes_to_what_is_not_of_the_run_are_no_replay() -> None:
    x, state = torch.ones(3), torch.zeros(3)
    tape = Tape()
    with tape:
        state += x
    assert not tape.is_whole


class Tagger(nn.Module):
    """Code that reads values in several ways, chosen by name."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.embed = nn.Linear(3, 6)
        self.rnn = nn.GRU(6, 8, batch_first=True)
        self.scale = nn.Parameter(torch.randn(8))
        self.out = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Any:
        x = torch.relu(self.embed(x))
        h = self.rnn(x)[0]
        if self.kind == "numpy":
            h = torch.from_numpy(h.detach().numpy() * 2)
        elif self.kind == "in place":
            h = h.clone()
            h[:, 1:] += h[:, :-1] * self.scale
        elif self.kind == "branch":
            h = h if h.abs().max() < 1e9 else h * 2
        elif self.kind == "number":
            return self.out(h), float(h.mean())
        elif self.kind == "attention":
            h = (h @ self.scale).softmax(-1)[..., None] * h
        return self.out(h)


@pytest.mark.parametrize("kind", ["plain", "numpy", "in place", "branch", "number", "attention"])
def test_plans_are_those_of_runs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x = Tagger(kind), torch.randn(2, 5, 3)
    by_replays = thinrnn.find_groups(model, x)
    monkeypatch.setattr(Probe, "_replay", lambda *_: None)
    assert by_replays == thinrnn.find_groups(model, x)


def test_depth_costs_no_runs() -> None:
    class Deep(nn.Module):
        calls = 0

        def __init__(self, depth: int) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.GRU(4, 4, batch_first=True) for _ in range(depth))

        def forward(self, x: Tensor) -> Tensor:
            Deep.calls += 1
            for layer in self.layers:
                x = x + layer(x)[0]
            return x

    found = []
    for depth in (2, 8):
        Deep.calls = 0
        thinrnn.find_groups(nn.Sequential(Deep(depth), nn.Linear(4, 2)), torch.randn(2, 5, 4))
        found.append(Deep.calls)
    assert found[0] == found[1] <= 30


def test_the_compiler_is_not_imported() -> None:
    program = """
import sys, torch, thinrnn
from torch import nn
thinrnn.find_groups(nn.Sequential(nn.Linear(3, 4), nn.GRU(4, 5)), torch.zeros(4, 2, 3))
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "False\n", done.stderr


def test_a_line_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    thinrnn.find_groups(nn.Sequential(nn.Linear(3, 4), nn.GRU(4, 5)), torch.zeros(4, 2, 3))
    lines = terminal.getvalue().split("\r")
    assert lines[1].startswith("find_groups: 0 s, layer 1 of 2: what reads '0'")
    assert lines[-1] == "" and not lines[-2].strip()  # cleared
    monkeypatch.setattr(sys, "stderr", no_terminal := io.StringIO())
    thinrnn.find_groups(nn.Sequential(nn.Linear(3, 4), nn.GRU(4, 5)), torch.zeros(4, 2, 3))
    assert no_terminal.getvalue() == ""
