"""Watching who feeds whom: the model runs with its known layers cut out.

        x ──▶ [embedding] ··· dropout ···▶ [lstm] ··· tanh, cat, attention ···▶ [decoder] ──▶ y
                  └ replayed                  └ replayed, some channels changed

During a probe each known layer returns what it returned before, so it costs nothing and hides what
came in; only the glue between layers runs. Changing some channels of one layer's result then moves
just the features that read them, and whatever else depends on them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from thinrnn.layers import Edit, Intake, Layer, LinearLayer, layer_of
from thinrnn.sandbox import is_close_to, run
from thinrnn.tree import Arguments, map_tensors, tensors_in

Source = tuple[str, str]  # (layer, space)
Port = tuple[str, str, str]  # (layer, argument, space)
Change = Callable[[Tensor], Tensor]  # values with channels last -> changed values


@dataclass
class Trace:
    """What one run showed."""

    intakes: dict[Port, list[Tensor]] = field(default_factory=dict)
    touched: list[tuple[frozenset[str], float]] = field(default_factory=list)
    returned: Any = None


class Probe:
    """A model whose layers are replayed; `look` runs it with some channels changed."""

    def __init__(self, model: nn.Module, arguments: Arguments) -> None:
        self.model = model
        self.arguments = arguments
        self.forwards = 0
        self.parameters = {id(p): name for name, p in model.named_parameters()}
        known = (layer_of(name, module) for name, module in model.named_modules())
        self.layers: dict[str, Layer] = {layer.name: layer for layer in known if layer is not None}
        self.results: dict[str, list[Any]] = {}
        self._record()
        self.layers = {n: layer for n, layer in self.layers.items() if n in self.results}
        generator = torch.Generator().manual_seed(0)
        for name, results in self.results.items():
            generic = self.layers[name].edit
            self.results[name] = [
                generic(result, lambda _, v: _shaken(v, generator)) for result in results
            ]
        self.base = self.look()

    def _record(self) -> None:
        """Run once for real and keep what each layer returned, call by call."""

        def recorded(layer: Layer, forward: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                watch.depth += 1
                try:
                    result = forward(*args, **kwargs)
                finally:
                    watch.depth -= 1
                self.results.setdefault(layer.name, []).append(result)
                return result

            return call

        watch = _Watch(self, Trace(), linear=self._record_linear)
        with _forwards(self.layers.values(), recorded), watch:
            self.forwards += 1
            run(self.model, self.arguments)

    def _record_linear(self, name: str, layer: Layer, args: Any, kwargs: Any) -> Any:
        result = F.linear(*args, **kwargs)
        self.layers.setdefault(name, layer)
        self.results.setdefault(name, []).append(result)
        return result

    def look(
        self,
        changes: Mapping[Source, Change] | None = None,
        arguments: Arguments | None = None,
    ) -> Trace:
        """Return the trace of one run with the given channels changed."""
        changes = changes or {}
        trace = Trace()
        calls = dict.fromkeys(self.results, 0)

        def replay(layer: Layer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            for intake in layer.intakes(args, kwargs):
                _note(trace, layer.name, intake)
            past = self.results[layer.name]
            result = past[min(calls[layer.name], len(past) - 1)]
            calls[layer.name] += 1
            if any(name == layer.name for name, _ in changes):
                result = layer.edit(result, _changed(layer, changes))
            return map_tensors(result, torch.clone)  # in-place code must not reach the recording

        def replayed(layer: Layer, forward: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **kwargs: replay(layer, args, kwargs)

        def linear(name: str, layer: Layer, args: Any, kwargs: Any) -> Any:
            return replay(self.layers.get(name, layer), args, kwargs)

        modules = [layer for layer in self.layers.values() if isinstance(layer.module, nn.Module)]
        with _forwards(modules, replayed), _Watch(self, trace, linear=linear):
            self.forwards += 1
            trace.returned = run(self.model, arguments or self.arguments)
        return trace

    def moved(self, trace: Trace) -> dict[Port, list[Tensor]]:
        """Return, per port and call, which features differ from the base run."""
        moved = {}
        for port, base in self.base.intakes.items():
            now = trace.intakes.get(port, [])
            moved[port] = [
                _moved_features(a, now[i] if i < len(now) else None) for i, a in enumerate(base)
            ]
        return moved

    def touched(self, trace: Trace) -> set[str]:
        """Return the raw parameters whose partners differ from the base run."""
        names: set[str] = set()
        for (parameters, now), (_, before) in zip(trace.touched, self.base.touched, strict=False):
            if abs(now - before) > 1e-9 * (abs(now) + abs(before)):
                names |= parameters
        return names

    def returned(self, trace: Trace) -> list[int]:
        """Return which of the returned tensors differ from the base run."""
        pairs = zip(tensors_in(trace.returned), tensors_in(self.base.returned), strict=False)
        return [i for i, (a, b) in enumerate(pairs) if _differs(a, b)]


class FunctionalLinear(LinearLayer):
    """`F.linear(x, self.embedding.weight)`: a layer without a module of its own."""

    def __init__(self, name: str, weight: Tensor, weight_name: str, bias_name: str | None) -> None:
        self.weight, self.weight_name, self.bias_name = weight, weight_name, bias_name
        super().__init__(name, None)  # type: ignore[arg-type]

    def build(self) -> None:
        n, m = self.weight.shape
        rows = [(self.weight_name, 0, (0,), "produce")]
        if self.bias_name:
            rows.append((self.bias_name, 0, (0,), "produce"))
        self.add("input", m, (self.weight_name, 1, (0,), "read"))
        self.add("output", n, *rows)  # type: ignore[arg-type]

    def has(self, parameter: str) -> bool:
        return True


class _Watch(TorchFunctionMode):
    """Sees every torch function: functional linear layers, and raw parameters in use."""

    def __init__(self, probe: Probe, trace: Trace, *, linear: Callable[..., Any]) -> None:
        self.probe, self.trace, self.linear = probe, trace, linear
        self.depth = 0
        self.derived: dict[int, tuple[Tensor, frozenset[str]]] = {}
        super().__init__()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.depth:
            return func(*args, **kwargs)
        if func is F.linear:
            found = self._functional_linear(args, kwargs)
            if found is not None:
                return self.linear(found.name, found, args, kwargs)
        result = func(*args, **kwargs)
        given = list(tensors_in((args, kwargs)))
        named = [self._names(t) for t in given]
        names = frozenset().union(*named)
        if names:
            others = [t for t, own in zip(given, named, strict=True) if not own]
            if others:
                self.trace.touched.append((names, sum(map(_fingerprint, others))))
            else:
                for t in tensors_in(result):
                    self.derived[id(t)] = (t, names)  # the tensor is held so that its id stays its
        return result

    def _names(self, tensor: Tensor) -> frozenset[str]:
        if id(tensor) in self.probe.parameters:
            return frozenset([self.probe.parameters[id(tensor)]])
        return self.derived[id(tensor)][1] if id(tensor) in self.derived else frozenset()

    def _functional_linear(self, args: Any, kwargs: Any) -> FunctionalLinear | None:
        weight = args[1] if len(args) > 1 else kwargs.get("weight")
        bias = args[2] if len(args) > 2 else kwargs.get("bias")
        names = self.probe.parameters
        if id(weight) not in names or (bias is not None and id(bias) not in names):
            return None
        name = f"linear({names[id(weight)]})"
        bias_name = None if bias is None else names[id(bias)]
        return FunctionalLinear(name, weight, names[id(weight)], bias_name)


@contextmanager
def _forwards(layers: Any, wrap: Callable[[Layer, Callable[..., Any]], Any]) -> Iterator[None]:
    """Put another `forward` on each layer's module for a while."""
    modules = []
    try:
        for layer in list(layers):
            modules.append(layer.module)
            layer.module.__dict__["forward"] = wrap(layer, layer.module.forward)
        yield
    finally:
        for module in modules:
            module.__dict__.pop("forward", None)


def _changed(layer: Layer, changes: Mapping[Source, Change]) -> Edit:
    def change(space: str, values: Tensor) -> Tensor:
        edit = changes.get((layer.name, space))
        return values if edit is None else edit(values)

    return change


def flipped(mask: Tensor) -> Change:
    """Change the channels in `mask` so much that no activation function can hide it."""
    generator = torch.Generator().manual_seed(1)

    def change(values: Tensor) -> Tensor:
        u = torch.rand(values.shape, generator=generator).to(values)
        other_side = torch.where(values > 0, -1.0, 1.0).to(values) * (0.5 + u)
        return torch.where(mask.to(values.device), other_side - values * (1 + 0.5 * u), values)

    return change


def silenced(mask: Tensor) -> Change:
    """Set the channels in `mask` to zero."""
    return lambda values: values.masked_fill(mask.to(values.device), 0)


def _shaken(values: Tensor, generator: torch.Generator) -> Tensor:
    """Move values off special points: a product with an exact zero would hide the other factor."""
    if not values.is_floating_point():
        return values
    u = torch.rand(values.shape, generator=generator).to(values)
    return values + torch.where(values >= 0, 0.05, -0.05).to(values) * (1 + u)


def _note(trace: Trace, layer: str, intake: Intake) -> None:
    key = (layer, intake.argument, intake.space)
    trace.intakes.setdefault(key, []).append(intake.values.detach().clone())


def _moved_features(base: Tensor, now: Tensor | None) -> Tensor:
    if now is None or now.shape != base.shape:
        return torch.ones(base.shape[-1], dtype=torch.bool)
    same = is_close_to(base, now)
    return ~same.reshape(-1, base.shape[-1]).all(0).cpu()


def _differs(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return True
    return not bool((is_close_to(a, b) if a.is_floating_point() else a == b).all())


def _fingerprint(tensor: Tensor) -> float:
    values = tensor.detach().double().nan_to_num()
    return float(values.sum() + 0.37 * values.abs().sum())
