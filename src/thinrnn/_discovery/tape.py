"""One run of the code between layers, as the operations it does, to do again what a change reaches.

        run:     clone ─▶ relu ─▶ note ─▶ clone ─▶ cat ─▶ add ─▶ note ─▶ ...
        replay:                           changed ─▶ again ─▶ again ─▶ compared

A change of one layer's result reaches few operations, so a replay costs a small part of a run. What
cannot be replayed (a value that Python has read, a random number) raises `Unlike`: run the code.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from thinrnn._model.operations import OperationMode

Hear = Callable[[Any, list[Tensor]], None]  # what hears of the values that a note is about


class Unlike(Exception):
    """A replay does not show what a run would."""


@dataclass(frozen=True)
class Step:
    """An operation, or a note about values without one."""

    run: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Any]  # tensors, and numbers that Python may have read
    given: tuple[int, ...]  # ids of the tensors among the arguments
    storages: frozenset[int]
    is_nested: bool = False  # tensors in lists
    is_note: bool = False
    is_random: bool = False


class Tape(OperationMode):
    """Records the operations of a run, entered as a context; `replay` does some of them again."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.is_whole = True  # nothing happened that a replay cannot repeat
        self._is_paused = False
        self._takers: dict[int, list[int]] = defaultdict(list)  # steps, by a tensor that they take
        self._tensors: dict[int, Tensor] = {}  # held, so that an id stays its own
        self._makers: dict[int, list[int]] = defaultdict(list)  # steps that shape a storage
        self._outside: set[int] = set()  # storages that are not of the run
        self._written: set[int] = set()  # storages that are written to in place
        self._reached: dict[tuple[int, ...], tuple[list[int], set[int]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self.is_whole and not self._is_paused:
            try:
                self._record(func, args, kwargs, result)
            except (NotImplementedError, RuntimeError):  # a tensor without a storage
                self.is_whole = False
        return result

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out our own operations."""
        before, self._is_paused = self._is_paused, True
        try:
            yield
        finally:
            self._is_paused = before

    def has(self, tensor: Tensor) -> bool:
        """Whether a tensor was met in the run."""
        return id(tensor) in self._tensors

    def note(self, values: list[Tensor], hear: Hear) -> None:
        """Let `hear` be called in each replay that changes one of the values."""
        given = tuple(map(id, values))
        self._add(Step(hear, tuple(values), {}, [], given, frozenset(), is_note=True))

    def replay(self, changed: Mapping[int, Tensor], told: Any) -> dict[int, Tensor]:
        """Do again what changed tensors reach, by their ids, and return all that came out changed.

        Raises:
            Unlike: Python may have taken another path; or whatever an operation raises.
        """
        now = dict(changed)
        steps, forced = self._reach(tuple(changed))
        for number in steps:
            step = self.steps[number]
            if number in forced or any(tensor in now for tensor in step.given):
                self._do(step, now, told, is_forced=number in forced)
        return now

    def _do(self, step: Step, now: dict[int, Tensor], told: Any, *, is_forced: bool) -> None:
        args = [now.get(id(arg), arg) for arg in step.args]
        if step.is_note:
            step.run(told, args)
            return
        if step.is_nested:
            args = _with(args, now)
        if step.is_random:
            raise Unlike("random numbers are drawn again")
        found = _leaves(step.run(*args, **(step.kwargs and _with(step.kwargs, now))))
        if len(found) != len(step.results):
            raise Unlike("another number of results")
        for new, old in zip(found, step.results, strict=True):
            if not isinstance(old, Tensor):
                if new != old:
                    raise Unlike("Python read another value")
            elif new.shape != old.shape or new.dtype != old.dtype:
                raise Unlike("a result has another shape")
            elif is_forced or not torch.equal(new, old):
                now[id(old)] = new

    def _record(self, func: Any, args: tuple[Any, ...], kwargs: Any, result: Any) -> None:
        given, results = list(_tensors((args, kwargs))), _leaves(result)
        read = {_storage(t) for t in given}
        for tensor in given:
            if id(tensor) not in self._tensors:  # nothing on the tape made it
                self._tensors[id(tensor)] = tensor
                self.is_whole &= _storage(tensor) not in self._makers
                self._outside.add(_storage(tensor))
        shaped = {_storage(t) for t in results if isinstance(t, Tensor)}
        written = {_storage(t) for t in _written(func, args, kwargs)}
        self.is_whole &= not written & self._outside
        self._written |= written
        for storage in (shaped | written) - self._outside:
            self._makers[storage].append(len(self.steps))
        self._tensors |= {id(t): t for t in results if isinstance(t, Tensor)}
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        storages = frozenset(read | shaped | written)
        ids = tuple(map(id, given))
        is_nested = any(True for arg in args if not isinstance(arg, Tensor) for _ in _tensors(arg))
        self._add(Step(func, args, kwargs, results, ids, storages, is_nested, is_random=is_random))

    def _add(self, step: Step) -> None:
        for tensor in dict.fromkeys(step.given):
            self._takers[tensor].append(len(self.steps))
        self.steps.append(step)

    def _reach(self, changed: tuple[int, ...]) -> tuple[list[int], set[int]]:
        """Return the steps that changes may reach, and those to do whether they are reached or not.

        What is written in place is made again from its beginning.
        """
        if changed not in self._reached:
            found: set[int] = set()
            forced: set[int] = set()
            todo = [step for tensor in changed for step in self._takers.get(tensor, ())]
            while todo:
                number = todo.pop()
                if number not in found:
                    found.add(number)
                    for storage in self.steps[number].storages & self._written:
                        todo += [s for s in self._makers[storage] if s not in found]
                        forced.update(self._makers[storage])
                    for made in self.steps[number].results:
                        todo += self._takers.get(id(made), ())
            self._reached[changed] = sorted(found), forced
        return self._reached[changed]


def _written(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """Yield the tensors that an operation writes to."""
    if func._schema.is_mutable:
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                yield from _tensors(args[place] if place < len(args) else kwargs[argument.name])


def _storage(tensor: Tensor) -> int:
    number: int = tensor.untyped_storage()._cdata
    return number


def _leaves(tree: Any) -> list[Any]:
    """Return what an operation returns as a flat list."""
    if isinstance(tree, (list, tuple)):
        return [leaf for part in tree for leaf in _leaves(part)]
    return [tree]


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for part in tree:
            yield from _tensors(part)
    elif isinstance(tree, dict):
        for part in tree.values():
            yield from _tensors(part)


def _with(tree: Any, now: Mapping[int, Tensor]) -> Any:
    """Return arguments with the tensors as they are now."""
    if isinstance(tree, Tensor):
        return now.get(id(tree), tree)
    if isinstance(tree, (list, tuple)):
        return type(tree)(_with(part, now) for part in tree)
    return {k: _with(v, now) for k, v in tree.items()} if isinstance(tree, dict) else tree
