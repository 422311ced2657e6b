"""Narrowing what arrives at full width: model inputs, and states that the user's code makes.

A small layer sits behind code that may still hand it the old width: the caller's own features, or
`torch.zeros(layers, batch, self.hidden_size)`. A `FullWidthInput` is a forward pre-hook on the
layer, which stays a plain torch module; it keeps the right entries when it sees the old width.
`FullWidthStates` does the same for the arguments of the model.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from thinrnn._layers.base import Layer
from thinrnn._layers.norms import NormLayer
from thinrnn._model.tree import map_tensors, parameters_of, paths_of, tensors_in
from thinrnn.errors import ThinRNNError
from thinrnn.group import Group, NormSlice, Slice, State
from thinrnn.plan import Plan


class Narrowing:
    """Which entries of a row stay (`kept`), and which arrive at the layer, kept or not."""

    def __init__(self, kept: Tensor, arriving: Tensor) -> None:
        self.width = len(kept)
        self.size = int(kept.sum())
        whole = kept.nonzero().flatten()
        among_arriving = (arriving.cumsum(0) - 1)[whole]
        self.index = {int(arriving.sum()): among_arriving, self.width: whole}

    def apply(self, values: Tensor, axis: int) -> Tensor:
        """Return the kept entries along an axis, whichever width the input has."""
        size = values.shape[axis]
        if size == self.size or size not in self.index:
            return values  # a size that fits nothing is for the layer itself to complain about
        if self.index[size].device != values.device:
            self.index[size] = self.index[size].to(values.device)
        return values.index_select(axis, self.index[size])


class FullWidthInput:
    """The hook of one layer: it narrows the input and each of the states."""

    def __init__(self, axis: int, entry: Narrowing | None, states: list[list[Narrowing]]) -> None:
        self.axis = axis
        self.entry = entry
        self.states = states  # hidden (and cell), one per layer and direction

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        args = list(args)
        for place, name, change in ((0, "input", self._input), (1, "hx", self._hx)):
            if len(args) > place:
                args[place] = change(args[place])
            elif name in kwargs:
                kwargs = {**kwargs, name: change(kwargs[name])}
        return tuple(args), kwargs

    def _input(self, x: Any) -> Any:
        if self.entry is None:
            return x
        if isinstance(x, PackedSequence):
            return PackedSequence(self.entry.apply(x.data, -1), *x[1:])
        return self.entry.apply(x, self.axis)

    def _hx(self, hx: Any) -> Any:
        if hx is None or not self.states:
            return hx
        if len(self.states) == 1:
            return self._state(hx, self.states[0])
        return tuple(self._state(h, c) for h, c in zip(hx, self.states, strict=True))

    def _state(self, state: Any, narrowings: list[Narrowing]) -> Any:
        if isinstance(state, Tensor) and len(narrowings) == 1:
            return narrowings[0].apply(state, -1)
        parts = [narrowing.apply(s, -1) for s, narrowing in zip(state, narrowings, strict=True)]
        if isinstance(state, Tensor) and len({p.shape for p in parts}) == 1:
            return torch.stack(parts)
        return parts


class FullWidthStates:
    """The hook of the model itself: it narrows states among its arguments, wherever they are."""

    def __init__(self, places: list[str], states: dict[str, tuple[int, Narrowing]]) -> None:
        self.places = places  # the names of positional arguments
        self.states = states  # by the argument's path: dimension, what stays

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        names = paths_of(self.places, (args, kwargs))
        given = list(zip(names, tensors_in((args, kwargs)), strict=True))
        if all(self._narrowed(*one) is one[1] for one in given):
            return args, kwargs
        left = iter(names)
        args, kwargs = map_tensors((args, kwargs), lambda t: self._narrowed(next(left), t))
        return args, kwargs

    def _narrowed(self, name: str, tensor: Tensor) -> Tensor:
        if name not in self.states or tensor.dim() < -self.states[name][0]:
            return tensor
        axis, narrowing = self.states[name]
        return narrowing.apply(tensor, axis)


InputHook = FullWidthInput | FullWidthStates


def full_width_inputs(
    model: nn.Module,
    layers: dict[str, Layer],
    plan: Plan,
    keep: dict[str, Tensor],
    *,
    full_inputs: bool,
) -> dict[str, InputHook]:
    """Return the hooks that a cut model needs, by the name of the layer.

    `layers`, `plan` and `keep` are those of the model before any cut. With `full_inputs` the small
    model takes the features of the large one; otherwise the caller narrows them.
    """
    hooks: dict[str, InputHook] = {}
    places = places_of(plan)
    for name, layer in layers.items():
        if not layer.is_plain:
            continue
        kept = kept_in_space(layer, layer.entry, places, keep)
        arriving = kept_in_space(layer, layer.entry, places, keep, made_only=full_inputs)
        at_full_width = layer.full_name("input") in plan.outside
        entry = None
        if kept.sum() < arriving.sum() or (at_full_width and not kept.all()):
            entry = Narrowing(kept, arriving)
        states: list[list[Narrowing]] = []
        if layer.full_name("state") in plan.outside:
            for row in layer.state_spaces:
                masks = [kept_in_space(layer, s, places, keep) for s in row]
                states.append([Narrowing(mask, mask) for mask in masks])
            if all(narrowing.size == narrowing.width for row in states for narrowing in row):
                states = []
        if entry is not None or states:
            hooks[name] = FullWidthInput(layer.axis, entry, states)
    given = {}
    for state in (state for group in plan.groups for state in group.states if state.argument):
        mask = kept_in_state(state, plan, keep)
        given[state.argument] = state.dim, Narrowing(mask, mask)
    if given and "" not in hooks:
        arguments = [parameter.name for parameter in parameters_of(model)] or ["input"]
        hooks[""] = FullWidthStates(arguments, given)
    return hooks


def add_hooks_(model: nn.Module, hooks: Mapping[str, InputHook]) -> None:
    """Put the hooks on the modules of a cut model."""
    for name, hook in hooks.items():
        module = model.get_submodule(name)
        module.register_forward_pre_hook(hook, with_kwargs=True)
        module.__dict__["__prepare_scriptable__"] = partial(_scriptable, module)


def _scriptable(module: nn.Module) -> nn.Module:
    """Return what `torch.jit.script` compiles in place of a module: one without these hooks.

    It then takes the narrow states only, and says so if it gets others.
    """
    plain: nn.Module = module.__new__(type(module))
    plain.__dict__.update(module.__dict__)
    del plain.__dict__["__prepare_scriptable__"]
    hooks = module._forward_pre_hooks.items()
    others = {key: hook for key, hook in hooks if not isinstance(hook, InputHook)}
    plain.__dict__["_forward_pre_hooks"] = OrderedDict(others)
    entries = (getattr(hook, "entry", None) for _, hook in hooks)
    if any(entry is not None for entry in entries):
        raise ThinRNNError(
            f"this {type(module).__name__} selects its input features, which torch.jit.script "
            "cannot compile: give it what compact(model, inputs='kept') returns."
        )
    own = getattr(plain, "__prepare_scriptable__", None)
    return own() if own is not None else plain


NORM = -1  # in place of a dimension, where a module is named in place of a parameter
Places = dict[tuple[str, int], list[tuple[Group, Slice | NormSlice]]]  # by parameter and dimension


def places_of(plan: Plan) -> Places:
    """Return the slices of a plan, with their groups, by where they are."""
    places: Places = defaultdict(list)
    for group in plan.groups:
        for s in group.slices:
            places[s.parameter, s.dim].append((group, s))
        for norm in group.norms:
            places[norm.module, NORM].append((group, norm))
    return places


def kept_in_space(
    layer: Layer, space: str, places: Places, keep: dict[str, Tensor], *, made_only: bool = False
) -> Tensor:
    """Return a mask over a space: True for each neuron that stays.

    With `made_only`, neurons that come from outside the model count as staying.
    """
    found = layer.spaces[space]
    if isinstance(layer, NormLayer):
        return kept_at((layer.name, NORM), found.size, places, keep, made_only=made_only)
    if not found.slots:
        return torch.ones(found.size, dtype=torch.bool)
    slot = found.slots[0]
    place = (layer.full_name(slot.parameter), slot.dim)
    size = slot.period or found.size
    mask = kept_at(place, size, places, keep, first=slot.starts[0], made_only=made_only)
    return mask.repeat(found.size // size)


def kept_at(
    place: tuple[str, int],
    size: int,
    places: Places,
    keep: dict[str, Tensor],
    *,
    first: int = 0,
    made_only: bool = False,
) -> Tensor:
    """Return a mask over the positions of a place from the first on: True for those that stay."""
    mask = torch.ones(size, dtype=torch.bool)
    for group, s in places.get(place, ()):
        if not (made_only and group.is_input):
            gone = torch.ones(group.size, dtype=torch.bool)
            gone[keep[group.name]] = False
            positions, neurons = s.index()
            inside = (positions >= first) & (positions < first + size)
            mask[positions[inside & gone[neurons]] - first] = False
    return mask


def kept_in_state(state: State, plan: Plan, keep: dict[str, Tensor], size: int = 0) -> Tensor:
    """Return a mask over the entries of a state along its dimension: True for those that stay.

    It covers all entries that belong to neurons, or `size` of them.
    """
    same = [
        (group, other)
        for group in plan.groups
        for other in group.states
        if (other.returned, other.dim) == (state.returned, state.dim)
    ]
    size = size or 1 + max(int(other.index()[0].max()) for _, other in same)
    mask = torch.ones(size, dtype=torch.bool)
    for group, other in same:
        gone = torch.ones(group.size, dtype=torch.bool)
        gone[keep[group.name]] = False
        positions, neurons = other.index()
        inside = positions < size
        mask[positions[inside]] = ~gone[neurons[inside]]
    return mask
