"""Interception reaches the modules that are given, and nothing else in the process."""

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thinrnn
from thinrnn._model.patching import intercepted


class Prepared(nn.LSTM):
    """A subclass that prepares its input and calls torch's part."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(2 * x)[0]


class Twice(Prepared):
    def forward(self, x: Tensor) -> Tensor:
        return 3 * super().forward(x)


def run(model: nn.Module, x: Tensor) -> Any:
    with torch.no_grad():
        return model(x)


@pytest.mark.parametrize("kind", [nn.LSTM, Prepared, Twice])
def test_a_call_is_met_where_torchs_part_begins(kind: type[nn.LSTM]) -> None:
    model, x = kind(3, 4), torch.randn(5, 2, 3)
    expected = run(model, x)
    seen = []

    def handle(key: str, forward: Any, args: Any, kwargs: Any) -> Any:
        seen.append((key, args[0]))
        return forward(*args, **kwargs)

    with intercepted([(model, nn.LSTM, "lstm")], handle):
        found = run(model, x)
        assert isinstance(model, kind) and type(model).__name__ == kind.__name__
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    (key, given), factor = seen[0], 1 if kind is nn.LSTM else 2
    assert len(seen) == 1 and key == "lstm" and torch.equal(given, factor * x)
    assert type(model) is kind and "forward" not in vars(model)
    run(model, x)
    assert len(seen) == 1


def test_everything_is_put_back_after_an_error() -> None:
    plain, prepared = nn.LSTM(3, 4), Prepared(3, 4)

    def handle(*_: Any) -> None:
        raise RuntimeError("stop")

    with (
        pytest.raises(RuntimeError, match="stop"),
        intercepted([(plain, nn.LSTM, 0), (prepared, nn.LSTM, 1)], handle),
    ):
        plain(torch.randn(5, 2, 3))
    assert type(prepared) is Prepared
    assert all("forward" not in vars(module) for module in (plain, prepared))


def test_other_threads_never_notice() -> None:
    """While find_groups runs, another thread's modules of the same classes work as before."""
    before = {kind: dict(vars(kind)) for kind in (nn.LSTM, nn.RNNBase, nn.Linear, Prepared)}
    changed, wrong, done = [], [], threading.Event()
    x = torch.randn(5, 2, 3)
    others = [nn.LSTM(3, 4), Prepared(3, 4)]
    expected = [run(other, x) for other in others]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Prepared(3, 4), nn.LSTM(4, 4)
            self.out = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            changed.extend(kind for kind, own in before.items() if dict(vars(kind)) != own)
            return self.out(self.second(self.first(x))[0])

    def work() -> None:
        while not done.is_set():
            for other, result in zip(others, expected, strict=True):
                found = run(other, x)
                same = [torch.equal(a, b) for a, b in zip(found[0], result[0], strict=True)]
                wrong.extend([] if all(same) else [other])

    thread = threading.Thread(target=work)
    thread.start()
    try:
        plan = thinrnn.find_groups(Model(), x)
    finally:
        done.set()
        thread.join()
    assert {"first.l0", "second.l0"} <= {group.name for group in plan}
    assert not changed and not wrong
