"""Finding out which layer feeds which: the model runs with its known layers cut out.

        x ──▶ [embedding] ··· dropout ···▶ [lstm] ··· tanh, cat, attention ···▶ [decoder] ──▶ y
                  └ replayed                  └ replayed, some channels changed

During a probe each known layer returns what it returned before, so it costs nothing and hides what
came in; only the code between layers runs. Changing some channels of one layer's result then moves
just the features that read them, and whatever else depends on them. The operations of that code are
kept on a tape; where a replay of it is proven to show the same, it stands for further runs.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinrnn._discovery.raw_tensors import FunctionalLinear, RawTensor, RawTensorMode
from thinrnn._discovery.recording import (
    OTHER_PATH,
    Comparison,
    Diverged,
    Heard,
    Recorder,
    Recording,
    Seen,
    differs,
)
from thinrnn._layers.applications import Applications, counting
from thinrnn._layers.base import Layer
from thinrnn._layers.norms import NormLayer
from thinrnn._layers.registry import layers_of
from thinrnn._model.isolation import run, where_in_user_code
from thinrnn._model.patching import intercepted
from thinrnn._model.tree import Arguments, is_number, map_tensors, numbers_in, tensors_in
from thinrnn.errors import ExampleError
from thinrnn.plan import named_tensors

Source = tuple[str, str]  # (layer, space)
Masks = Mapping[Source, Tensor]  # which channels of which sources to change
Zeroed = frozenset[str]  # raw tensors that are set to zero
NOTHING: Zeroed = frozenset()
Mode = AbstractContextManager[Any]


class ProbePoint:
    """Arguments, values for the layers to return, and what the unchanged model does with them.

    In turn 0 they are what the layers returned, moved off special points, where a zero hides a
    factor; then all positive, twice, which shows products of rectified factors; then all negative.
    """

    def __init__(
        self,
        arguments: Arguments,
        layers: Mapping[str, Layer],
        recorded: Mapping[str, list[Any]],
        turn: int,
    ) -> None:
        self.arguments, self.turn = arguments, turn
        self.bases: dict[Zeroed, Recording] = {}
        generator = torch.Generator().manual_seed(turn)

        def change(_: str, values: Tensor) -> Tensor:
            if not values.is_floating_point():
                return values
            u = torch.rand(values.shape, generator=generator).to(values)
            if turn == 0:
                return values + torch.where(values >= 0, 0.05, -0.05).to(values) * (1 + u)
            return (1 + u) * (-1.5 if turn == 3 else 1.5)

        self.results = {
            name: [layers[name].edit(result, change) for result in calls]
            for name, calls in recorded.items()
        }


class Probe:
    """A model whose layers are replayed; `look` runs it with some channels changed.

    `points` are the values at which it runs, `ports` the arguments of layers that are compared.
    """

    def __init__(
        self,
        model: nn.Module,
        arguments: Arguments,
        *,
        through_norms: bool = False,
        training: bool = False,
    ) -> None:
        self.model, self.arguments, self.training = model, arguments, training
        self.through_norms = through_norms
        self.tensors = named_tensors(model)
        self.held = {id(tensor): name for name, tensor in reversed(self.tensors.items())}
        layers = layers_of(model).items()
        self.known = {n: la for n, la in layers if through_norms or not isinstance(la, NormLayer)}
        self.layers: dict[str, Layer] = {}
        self.is_replayed: bool | None = None  # whether replays were shown to stand for runs
        self.entries: dict[int, Layer] = {}  # returned tensors that are compared like intakes
        recorded = self._recorded()
        self.points: list[ProbePoint] = []
        self._add_point(ProbePoint(arguments, self.layers, recorded, 0))
        others = without_zeros(arguments)
        for turn in range(1, max(turns(self._fewest_rows()), 1 if others is arguments else 2)):
            choice = [others, arguments]
            any(self._add_point(ProbePoint(given, self.layers, recorded, turn)) for given in choice)
        self.ports = list(self.base.intakes)
        self._need_repeatable()
        if not training:
            self._look_around()

    @property
    def examples(self) -> list[Arguments]:
        """The arguments that were looked at."""
        return list({id(point.arguments): point.arguments for point in self.points}.values())

    @property
    def base(self) -> Recording:
        """The run that others are compared with."""
        return self._base(self.points[0], NOTHING)

    def add_raw(self, name: str) -> RawTensor:
        """Make a raw tensor a source whose values can be changed."""
        layer = RawTensor(name, self.tensors[name])
        self.layers[name] = layer
        return layer

    def add_entries(self, entries: Mapping[int, Layer]) -> None:
        """Compare returned tensors, by their numbers, as if layers took them in."""
        self.entries = dict(entries)
        for entry in entries.values():
            self.layers[entry.name] = entry
        for point in self.points:
            point.bases.clear()
        self.ports = list(self.base.intakes)

    def look(
        self,
        masks: Masks | None = None,
        *,
        argument: tuple[int, Tensor] | None = None,
        zeroed: Zeroed = NOTHING,
    ) -> Seen:
        """Return what moves when the masked channels, or entries of an argument, are changed."""
        seen = Seen(self.base)
        for point in self.points:
            try:
                base = self._base(point, zeroed)
                if self._replay(point, base, masks or {}, argument, zeroed, seen) is None:
                    self._run(point, Comparison(base, seen), masks or {}, argument, zeroed)
            except Diverged as error:
                seen.diverge(str(error))
            except Exception as error:
                where = f"{error} [{where_in_user_code(error)}]"
                seen.diverge(f"the model's code fails when its values change: {where}")
        return seen

    def returned(self, masks: Masks) -> list[Tensor]:
        """Return what the model returns when the masked channels are changed."""
        point, seen = self.points[0], Seen(self.base)
        found = self._replay(point, self.base, masks, None, NOTHING, seen)
        if found is None:
            recording = Recording()
            self._run(point, recording, masks, None, NOTHING)
            found = recording.returned
        return found

    def _follow(self, **options: Any) -> list[tuple[Layer, bool]] | None:
        """Return the layers that a run calls, and whether with a state; None where it fails."""
        called: list[tuple[Layer, bool]] = []

        def call(layer: Layer, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            has_state = any(intake.argument == "state" for intake in layer.intakes(args, kwargs))
            called.append((layer, has_state))
            past = self.points[0].results.get(layer.name)
            if past is not None:
                return map_tensors(past[-1], torch.clone)
            mode.inside += 1
            try:
                return forward(*args, **kwargs)
            finally:
                mode.inside -= 1

        def linear(layer: FunctionalLinear, args: Any, kwargs: Any) -> Any:
            return F.linear(*args, **kwargs)

        mode = RawTensorMode(self.held, linear, lambda names, others: None)
        try:
            with self._intercepted(call):
                run(self.model, self.arguments, modes=[mode], **options)
        except Exception:
            return None
        self.used_later = mode.used - self.used
        return called

    def _look_around(self) -> None:
        """Find out what training calls, and which states are kept from one call to the next."""
        training = self._follow(training=True)
        self.can_train = training is not None
        self.called_in_training = {layer.name for layer, _ in training or ()}
        self.used_in_training = self.used_later if self.can_train else set()
        twice = self._follow(calls=2) or []
        first, second = twice[: len(twice) // 2], twice[len(twice) // 2 :]
        pairs = zip(first, second, strict=False)
        self.kept_states = {a[0].name for a, b in pairs if a[1] != b[1]}

    def _recorded(self) -> dict[str, list[Any]]:
        """Run once for real and return what each layer returned, call by call."""
        results: dict[str, list[Any]] = {}

        def note(layer: Layer, result: Any) -> Any:
            self.layers.setdefault(layer.name, layer)
            results.setdefault(layer.name, []).append(map_tensors(result, torch.clone))
            return result

        def call(layer: Layer, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            mode.inside += 1
            try:
                return note(layer, forward(*args, **kwargs))
            finally:
                mode.inside -= 1

        def linear(layer: FunctionalLinear, args: Any, kwargs: Any) -> Any:
            return note(layer, F.linear(*args, **kwargs))

        mode = RawTensorMode(self.held, linear, lambda names, others: None)
        with counting(self.model) as counts:
            self._call([mode], call, self.arguments)
        self.applications = Applications(self.model, counts)
        self.used = mode.used  # raw tensors in use
        self.functional_norms = mode.norms  # that no known layer calls
        called = {name: layer for name, layer in self.known.items() if name in self.layers}
        self.layers = called | self.layers  # those without a module come last
        return results

    def _add_point(self, point: ProbePoint) -> bool:
        """Add values to look at, if the model's code takes the same path with them."""
        try:
            path = self._base(point, NOTHING).path()
        except Exception:
            if not self.points:
                raise
            return False
        same = not self.points or path == self.base.path()
        if same:
            self.points.append(point)
        return same

    def _fewest_rows(self) -> int:
        """Return the number of values of the feature that has the fewest."""
        rows = (
            sum(v.numel() // max(v.shape[-1], 1) for v in calls)
            for calls in self.base.intakes.values()
        )
        return min(rows, default=0)

    def _base(self, point: ProbePoint, zeroed: Zeroed) -> Recording:
        if zeroed not in point.bases:
            base = Recording()
            self._run(point, base, {}, None, zeroed)
            point.bases = {NOTHING: point.bases.get(NOTHING, base), zeroed: base}
            if self.is_replayed is None:
                self.is_replayed = self._is_replayed(point, base)
            base.tape.is_whole &= self.is_replayed
        return point.bases[zeroed]

    def _is_replayed(self, point: ProbePoint, base: Recording) -> bool:
        """Whether a replay in which everything is changed shows the values that a run has."""
        masks = {
            (name, space.name): torch.ones(space.size, dtype=torch.bool)
            for name in point.results
            for space in self.layers[name].spaces.values()
        }
        copy, ran = Recording(), Recording()
        copy.intakes = {port: list(calls) for port, calls in base.intakes.items()}
        heard = Heard(copy)
        returned = self._replay(point, base, masks, None, NOTHING, heard)
        if returned is None:  # which tells that a run is needed, each time
            return True
        try:
            self._run(point, ran, masks, None, NOTHING)
        except Exception:
            return False
        return heard.is_like(ran) and not any(map(differs, returned, ran.returned))

    def _replay(
        self,
        point: ProbePoint,
        base: Recording,
        masks: Masks,
        argument: tuple[int, Tensor] | None,
        zeroed: Zeroed,
        seen: Seen,
    ) -> list[Tensor] | None:
        """Do again what changes reach in a recorded run; return what the model returns.

        Where a replay may not show what a run would, return None.
        """
        if not base.tape.is_whole:
            return None
        changes = dict(self._changes(point, masks, argument))
        try:
            with self._raws(_by_layer(masks), zeroed, point.turn):
                now = base.tape.replay(changes, seen)
        except Exception:
            return None
        returned = [now.get(id(leaf), leaf) for leaf in base.leaves]
        seen.finish(base.returned, returned)
        return returned

    def _changes(
        self, point: ProbePoint, masks: Masks, argument: tuple[int, Tensor] | None
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield the tensors that differ from a recorded run, by the ids of those in their place."""
        for name, own in _by_layer(masks).items():
            layer = self.layers[name]
            if isinstance(layer, RawTensor):
                yield id(layer.tensor), layer.tensor
            for past in point.results.get(name, ()):
                edited = _edited(layer, past, own, point.turn)
                for old, new in zip(tensors_in(past), tensors_in(edited), strict=True):
                    if not torch.equal(old, new):
                        yield id(old), torch.empty_like(old).copy_(new)
        if argument is not None:
            index, mask = argument
            leaf = list(tensors_in(point.arguments))[index]
            yield id(leaf), changed(leaf, mask, point.turn)

    def _run(
        self,
        point: ProbePoint,
        recorder: Recorder,
        masks: Masks,
        argument: tuple[int, Tensor] | None,
        zeroed: Zeroed,
    ) -> None:
        """Run the code between the layers and let the recorder note what happens."""
        calls = dict.fromkeys(point.results, 0)
        edits = _by_layer(masks)
        tape = recorder.tape if isinstance(recorder, Recording) else nullcontext()

        def replay(layer: Layer, args: Any, kwargs: Any) -> Any:
            past = point.results.get(layer.name)
            if past is None or calls[layer.name] > 4 * len(past) + 64:  # it may never end
                raise Diverged(OTHER_PATH)
            for intake in layer.intakes(args, kwargs):
                recorder.intake((layer.name, intake.argument, intake.space), intake.values)
            for index in layer.choices(args, kwargs):
                recorder.choose(layer.name, index)
            result = past[min(calls[layer.name], len(past) - 1)]
            calls[layer.name] += 1
            if own := edits.get(layer.name):
                result = _edited(layer, result, own, point.turn)
            return map_tensors(result, torch.clone)  # in-place code must not reach the recording

        def call(layer: Layer, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            with torch._C.DisableTorchFunction():  # our own operations are not noted
                return replay(layer, args, kwargs)

        given = point.arguments
        if argument is not None:
            given = with_changed(given, argument, point.turn)
        with self._raws(edits, zeroed, point.turn):
            mode = RawTensorMode(self.held, replay, recorder.touch)
            result = self._call([mode, tape], call, given)
            if isinstance(recorder, Recording):
                recorder.tape.is_whole &= not mode.left_torch
            returned = list(numbers_in(result)) if self.entries else []
            for index, entry in self.entries.items():
                if index >= len(returned):
                    raise Diverged(OTHER_PATH)
                with tape:
                    values = returned[index].movedim(entry.axis, -1)
                recorder.intake((entry.name, "entry", "input"), values)
            recorder.finish(result)

    def _call(self, modes: list[Mode], call: Callable[..., Any], arguments: Arguments) -> Any:
        with self._intercepted(call):
            return run(self.model, arguments, training=self.training, modes=modes)

    def _intercepted(self, call: Callable[..., Any]) -> AbstractContextManager[None]:
        layers = ((layer.module, layer.base, layer) for layer in self.known.values())
        return intercepted(layers, call)

    @contextmanager
    def _raws(
        self, edits: Mapping[str, Mapping[str, Tensor]], zeroed: Zeroed, turn: int
    ) -> Iterator[None]:
        """Change raw tensors for the length of a run."""
        before = {}
        try:
            for name in zeroed:
                tensor = before[name] = self.tensors[name].data
                self.tensors[name].data = torch.zeros_like(tensor)
            for name, own in edits.items():
                layer = self.layers[name]
                if isinstance(layer, RawTensor):
                    before.setdefault(name, layer.tensor.data)
                    for space, mask in own.items():
                        dim = layer.spaces[space].slots[0].dim
                        values = changed(layer.tensor.data.movedim(dim, -1), mask, turn)
                        layer.tensor.data = values.movedim(-1, dim)
            yield
        finally:
            for name, data in before.items():
                self.tensors[name].data = data

    def _need_repeatable(self) -> None:
        seen = self.look()
        restless = [port for port in self.ports if seen.features(port).any()]
        if restless or seen.returned:
            where = f"what '{restless[0][0]}' reads" if restless else "what it returns"
            raise ExampleError(
                f"the model computes other values each time it is called in eval, in {where}. "
                "Draw random numbers with torch, numpy.random or random, or not at all in eval."
            )


def changed(values: Tensor, mask: Tensor, turn: int) -> Tensor:
    """Return the values with those in `mask` moved far up or down, the other way in the next turn.

    They go beyond the largest in either direction: no activation, clamp or maximum hides it. Half
    of the values of each channel, which is last, go up.
    """
    mask = mask.to(values.device)
    if not is_number(values):
        return values ^ mask if values.dtype == torch.bool else values
    size = values.nan_to_num(0, 0, 0).abs().max().clamp(min=1) if values.numel() else 1.0
    return torch.where(mask, values + _moves(values.shape, turn).to(values) * size, values)


@lru_cache(maxsize=8)  # most layers have one of a few shapes
def _moves(shape: torch.Size, turn: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    channels = shape[-1]
    rows = torch.randperm(shape.numel() // max(channels, 1), generator=generator)
    shift = torch.randint(2, (channels,), generator=generator) + turn
    way = (rows.view(*shape[:-1], 1) + shift) % 2 * 2 - 1
    return way * (2 + torch.rand(shape, generator=generator, dtype=torch.float64))


def _by_layer(masks: Masks) -> dict[str, dict[str, Tensor]]:
    edits: dict[str, dict[str, Tensor]] = {}
    for (name, space), mask in masks.items():
        edits.setdefault(name, {})[space] = mask
    return edits


def _edited(layer: Layer, result: Any, own: Mapping[str, Tensor], turn: int) -> Any:
    return layer.edit(result, lambda s, v: changed(v, own[s], turn) if s in own else v)


def turns(rows: int) -> int:
    """Return how many points to look at when a feature has so many values to show a change."""
    return 1 if rows >= 64 else 2 if rows >= 16 else 3 if rows >= 6 else 4


def without_zeros(arguments: Arguments) -> Arguments:
    """Return the arguments with noise instead of zeros, which hide what they multiply."""
    if not any(_has_zeros(leaf) for leaf in tensors_in(arguments)):
        return arguments
    generator = torch.Generator().manual_seed(0)

    def change(leaf: Tensor) -> Tensor:
        if not _has_zeros(leaf):
            return leaf
        noise = torch.rand(leaf.shape, generator=generator).to(leaf) + 0.5
        return torch.where(leaf == 0, noise, leaf)

    filled: Arguments = map_tensors(arguments, change)
    return filled


def _has_zeros(leaf: Tensor) -> bool:
    return leaf.is_floating_point() and bool((leaf == 0).any())


def with_changed(arguments: Arguments, which: tuple[int, Tensor], turn: int) -> Arguments:
    """Return the arguments with the masked entries of one tensor changed."""
    index, mask = which
    count = iter(range(1 << 30))
    found: Arguments = map_tensors(
        arguments, lambda t: changed(t, mask, turn) if next(count) == index else t
    )
    return found
