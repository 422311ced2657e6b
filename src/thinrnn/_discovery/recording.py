"""What happens between the layers in one run: recorded, or compared with a recording."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from thinrnn._discovery.tape import Tape
from thinrnn._model.tree import is_number, named_numbers_in, numbers_in

Port = tuple[str, str, str]  # (layer, argument, space)
OTHER_PATH = "the model's code takes another path when its values change"


class Diverged(Exception):
    """A run took another path than the recording, so that the two cannot be compared."""


class Recording:
    """A run to compare others with: what the layers take in, look up and meet, and the result.

    Its `tape` notes the values that are compared, so that a replay tells a `Seen` what has changed.
    """

    def __init__(self) -> None:
        self.tape = Tape()
        self.intakes: dict[Port, list[Tensor]] = {}
        self.choices: list[Tensor] = []
        self.touches: list[float] = []
        self.returned: list[Tensor] = []
        self.leaves: list[Tensor] = []  # of what is returned, as the tape has them
        self.paths: list[str] = []  # of what is returned

    def intake(self, port: Port, values: Tensor) -> None:
        """Note that a layer takes in values, features last."""
        calls = self.intakes.setdefault(port, [])
        number = len(calls)
        with self.tape.paused():
            calls.append(values.detach().clone())
        self.tape.note([values], lambda seen, new: seen.intake(port, number, calls[number], *new))

    def choose(self, layer: str, index: Tensor) -> None:
        """Note that a layer looks up rows."""
        with self.tape.paused():
            before = index.clone()
        self.choices.append(before)
        self.tape.note([index], lambda seen, new: seen.choose(layer, before, *new))

    def touch(self, names: frozenset[str], others: list[Tensor]) -> None:
        """Note that raw tensors meet other values."""
        with self.tape.paused():
            before = _fingerprint(others)
        self.touches.append(before)
        self.tape.note(others, lambda seen, new: seen.touch(names, before, new))

    def finish(self, result: Any) -> None:
        """Note what the model returns."""
        found = list(named_numbers_in(result))
        self.paths = [path for path, _ in found]
        self.leaves = [t for _, t in found]
        self.tape.is_whole &= all(map(self.tape.has, self.leaves))  # no number made by Python
        self.returned = [t.detach().clone() for t in self.leaves]

    def path(self) -> list[tuple[Port, list[torch.Size]]]:
        """Return the path of the code: the calls of the layers and the shapes in them."""
        return [(port, [v.shape for v in calls]) for port, calls in self.intakes.items()]

    def still(self, port: Port) -> list[Tensor]:
        """Return, per call of a port, that no feature moves."""
        return [torch.zeros(v.shape[-1], dtype=torch.bool) for v in self.intakes[port]]


@dataclass
class Seen:
    """What a run showed, in comparison with a recording."""

    base: Recording
    moved: dict[Port, list[Tensor]] = field(default_factory=dict)  # per call, which features
    returned: set[int] = field(default_factory=set)  # which of the returned tensors
    touched: dict[str, None] = field(default_factory=dict)  # raw tensors that met other values
    chosen: dict[str, None] = field(default_factory=dict)  # layers that looked up other rows
    diverged: str = ""  # why the code did not take the same path

    def features(self, port: Port) -> Tensor:
        """Return which features of a port moved, in any call."""
        return torch.stack(self.moved.get(port) or self.base.still(port)).any(0)

    def diverge(self, why: str) -> None:
        """Note that a run cannot be compared: anything may have moved."""
        self.diverged = self.diverged or why
        self.moved = {port: [~call for call in self.base.still(port)] for port in self.base.intakes}

    def intake(self, port: Port, number: int, before: Tensor, now: Tensor) -> None:
        """Compare what a layer takes in."""
        features = _moved_features(before, now)
        if features.any():
            if port not in self.moved:
                self.moved[port] = self.base.still(port)
            self.moved[port][number] |= features

    def choose(self, layer: str, before: Tensor, now: Tensor) -> None:
        """Compare the rows that a layer looks up."""
        if differs(before, now):
            self.chosen[layer] = None

    def touch(self, names: frozenset[str], before: float, others: list[Tensor]) -> None:
        """Compare what raw tensors meet."""
        now = _fingerprint(others)
        if abs(now - before) > 1e-9 * (abs(now) + abs(before)):
            self.touched.update(dict.fromkeys(sorted(names)))

    def finish(self, before: list[Tensor], now: list[Tensor]) -> None:
        """Compare what the model returns."""
        pairs = enumerate(zip(before, now, strict=True))
        self.returned |= {i for i, (a, b) in pairs if a is not b and differs(a, b)}


class Heard(Seen):
    """Keeps what a replay takes in, to compare it with that of a run."""

    def intake(self, port: Port, number: int, before: Tensor, now: Tensor) -> None:
        self.base.intakes[port][number] = now

    def is_like(self, other: Recording) -> bool:
        """Whether a run took in the same."""
        if self.base.path() != other.path():
            return False
        ours, theirs = (
            [values for calls in run.intakes.values() for values in calls]
            for run in (self.base, other)
        )
        return not any(map(differs, ours, theirs))


class Comparison:
    """Compares a run with a recording while it goes on, so that no values are kept."""

    def __init__(self, base: Recording, seen: Seen) -> None:
        self.base, self.seen = base, seen
        self.calls = dict.fromkeys(base.intakes, 0)
        self.choices = self.touches = 0

    def intake(self, port: Port, values: Tensor) -> None:
        before = self.base.intakes.get(port, [])
        number = self.calls.get(port, 0)
        if number >= len(before) or before[number].shape != values.shape:
            raise Diverged(OTHER_PATH)
        self.seen.intake(port, number, before[number], values)
        self.calls[port] = number + 1

    def choose(self, layer: str, index: Tensor) -> None:
        if self.choices >= len(self.base.choices):
            raise Diverged(OTHER_PATH)
        self.seen.choose(layer, self.base.choices[self.choices], index)
        self.choices += 1

    def touch(self, names: frozenset[str], others: list[Tensor]) -> None:
        before = self.base.touches[self.touches] if self.touches < len(self.base.touches) else 0.0
        self.seen.touch(names, before, others)
        self.touches += 1

    def finish(self, result: Any) -> None:
        if any(self.calls[port] < len(calls) for port, calls in self.base.intakes.items()):
            raise Diverged(OTHER_PATH)
        now = [t.detach() for t in numbers_in(result)]
        if len(now) != len(self.base.returned):
            raise Diverged("the model returns another number of tensors when its values change")
        self.seen.finish(self.base.returned, now)


Recorder = Recording | Comparison  # what is told about a run


def differs(a: Tensor, b: Tensor) -> bool:
    """Return whether two results differ by more than rounding."""
    if a.shape != b.shape:
        return True
    if not is_number(a):
        return not torch.equal(a, b)
    return bool(_moved_features(a.reshape(-1, 1), b.reshape(-1, 1)).any())


def _moved_features(a: Tensor, b: Tensor) -> Tensor:
    """Return which features, last, differ by more than rounding anywhere."""
    a, b = a.detach().reshape(-1, a.shape[-1]), b.detach().reshape(-1, b.shape[-1])
    moved = a != b
    if is_number(a) and moved.any():
        tiny = 1e-11 if a.dtype in (torch.float64, torch.complex128) else 1e-5
        # rounding is relative to the feature, not to one element of it, which may be near zero
        size = torch.maximum(a.abs(), b.abs()).nan_to_num(0, 0, 0).amax(0)
        odd = (a.isnan() != b.isnan()) | (a.isinf() != b.isinf())
        moved = moved & (((a - b).abs() > tiny * size) | odd)
    return moved.any(0).cpu()


def _fingerprint(tensors: list[Tensor]) -> float:
    """Return a number that changes with the values; a huge one does not hide the others."""
    total = 0.0
    for tensor in tensors:
        values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        values = values.detach().double().nan_to_num()
        small = values / (1 + values.abs())
        total += float(small.sum() + 0.37 * small.abs().sum())
    return total
