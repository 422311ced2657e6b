"""Every kind of recurrent module and call, for tests that compare two ways of computing it."""

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

KINDS = ("LSTM", "projected LSTM", "GRU", "tanh RNN", "relu RNN")
LAYOUTS = ("padded", "packed", "packed unsorted", "unbatched")


@dataclass(frozen=True)
class Case:
    kind: str
    layers: int
    bidirectional: bool
    bias: bool
    batch_first: bool
    layout: str
    given_state: bool
    lengths: tuple[int, ...]
    seed: int

    def module(self, **options: Any) -> nn.RNNBase:
        torch.manual_seed(self.seed)
        options |= {
            "num_layers": self.layers,
            "bidirectional": self.bidirectional,
            "bias": self.bias,
            "batch_first": self.batch_first,
            "dtype": torch.float64,
        }
        if self.kind == "LSTM":
            return nn.LSTM(4, 5, **options)
        if self.kind == "projected LSTM":
            return nn.LSTM(4, 5, proj_size=3, **options)
        if self.kind == "GRU":
            return nn.GRU(4, 5, **options)
        return nn.RNN(4, 5, nonlinearity=self.kind.split()[0], **options)

    def input(self, size: int = 4) -> Tensor | PackedSequence:
        torch.manual_seed(self.seed + 1)
        batch, steps = len(self.lengths), self.lengths[0]
        if self.layout == "unbatched":
            return _normal(steps, size)
        if self.layout == "padded":
            return _normal(*((batch, steps) if self.batch_first else (steps, batch)), size)
        if self.layout == "packed":
            return pack_sequence([_normal(n, size) for n in sorted(self.lengths, reverse=True)])
        return pack_sequence([_normal(n, size) for n in self.lengths], enforce_sorted=False)

    def states(self, sizes: list[int]) -> list[Tensor]:
        """One state per layer and direction, of these sizes."""
        batch = () if self.layout == "unbatched" else (len(self.lengths),)
        return [_normal(*batch, size) for size in sizes]

    def hx(self) -> Any:
        """States for `module()`, or None."""
        if not self.given_state:
            return None
        parts = self.layers * (2 if self.bidirectional else 1)
        if "LSTM" not in self.kind:
            return torch.stack(self.states([5] * parts))
        outputs = 3 if self.kind == "projected LSTM" else 5
        return torch.stack(self.states([outputs] * parts)), torch.stack(self.states([5] * parts))


def cases(**fixed: Any) -> st.SearchStrategy[Case]:
    """Any case, except for what is fixed."""
    free = {
        "kind": st.sampled_from(KINDS),
        "layers": st.integers(1, 3),
        "bidirectional": st.booleans(),
        "bias": st.booleans(),
        "batch_first": st.booleans(),
        "layout": st.sampled_from(LAYOUTS),
        "given_state": st.booleans(),
        "lengths": st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple),
        "seed": st.integers(0, 10_000),
    }
    return st.builds(Case, **free | {name: st.just(value) for name, value in fixed.items()})


def tensors(result: Any) -> list[Tensor]:
    """All tensors that a recurrent module returned: the output, then the states one by one."""
    if isinstance(result, PackedSequence):
        return [part for part in result if part is not None]
    if isinstance(result, Tensor):
        return [result]
    return [tensor for part in result for tensor in tensors(part)]


def assert_same(result: Any, expected: Any, tolerance: float = 1e-12) -> None:
    """Fail unless both hold equal tensors of equal shapes.

    The gradients of a relu RNN grow to 1e5, and rounding errors with them.
    """
    wanted = tensors(expected)
    largest = max((float(t.abs().max()) for t in wanted if t.numel()), default=1.0)
    atol = tolerance * max(1.0, largest)
    torch.testing.assert_close(tensors(result), wanted, rtol=tolerance, atol=atol)


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)
