"""verify: the proof that the small model does what the gated one does."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._gates.attach import attached, is_attached
from thinrnn._layers.norms import NormLayer
from thinrnn._layers.registry import layers_of
from thinrnn._model.copying import copy_module, to_float64_
from thinrnn._model.isolation import fresh_copy, ours_on_cpu, precision_of, run, where_in_user_code
from thinrnn._model.patching import intercepted
from thinrnn._model.tree import (
    Arguments,
    argument_names,
    call_arguments,
    is_number,
    map_tensors,
    named_numbers_in,
    tensors_in,
)
from thinrnn._surgery.compact import Limit
from thinrnn._surgery.full_width_inputs import kept_in_space, kept_in_state, places_of
from thinrnn._surgery.provenance import Record
from thinrnn._surgery.speed import warn_unless_faster
from thinrnn.errors import HardCodedSizeError, VerifyError
from thinrnn.group import State
from thinrnn.nn.rnn_stack import RNNStack
from thinrnn.plan import Plan

Source = tuple[str, str]  # (layer, space)
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def verify(
    gated: nn.Module,
    small: nn.Module,
    example: Any,
    *,
    target: Limit | None = None,
    tolerance: float | None = None,
    speed: bool = False,
) -> float:
    """Run both models in eval on an example, and return the largest difference of their outputs.

    Both are run on copies, in float64 where they allow it. Returned states are compared on the
    neurons that were kept.

    Args:
        gated: The model with gates, from `attach_`.
        small: What `compact` made of it.
        example: What the models are called with: a tensor, or a tuple of positional arguments.
        target: The `Target` that `compact` was given, if it was given one.
        tolerance: The largest difference to accept, relative to the size of the outputs. By
            default 1e-10 for a model in float64, 1e-5 in float32, where folding a gate into a
            weight rounds the weight, and 3e-2 in 16 bits.
        speed: Also time the small model beside the gated one without its gates, and warn if it is
            not faster: small layers may take no longer than the calls around them.

    Returns:
        The largest absolute difference.

    Raises:
        VerifyError: The outputs differ by more; the message names the first module that differs.
        HardCodedSizeError: The small model does not run, since its code relies on a size.

    Example:
        >>> model = nn.Sequential(nn.Embedding(50, 16), nn.LSTM(16, 32))
        >>> tokens = torch.randint(50, (10, 4))
        >>> _ = thinrnn.attach_(model, thinrnn.find_groups(model, tokens))
        >>> small = thinrnn.compact(model)
        >>> thinrnn.verify(model, small, tokens) < 1e-5
        True
    """
    if tolerance is None:
        tolerance = tolerance_for(precision_of(small))
    accepted = tolerance

    final = {} if target is None else target.final_log_alpha()

    def use(large: nn.Module, given: Arguments) -> Compared:
        for name, log_alpha in final.items():
            attached(large).gates[name].log_alpha = log_alpha
        little = copy_module(small).eval()
        if precision_of(large) == torch.float64:
            little = to_float64_(little)
        return compare(large, little, given, accepted)

    with ours_on_cpu():
        found = fresh_copy(gated, call_arguments(example), use)[2]
    if found.problem:
        raise VerifyError(found.problem)
    if speed:
        warn_unless_faster(gated, small, call_arguments(example))
    return found.worst


def tolerance_for(precision: torch.dtype) -> float:
    """Return the largest difference that rounding explains, relative to the outputs."""
    return TOLERANCE.get(precision, 3e-2)


@dataclass(frozen=True)
class Compared:
    """How far two models are apart, and what is wrong, if anything."""

    worst: float
    problem: str = ""
    first: str = ""  # the first module whose result differs
    same_shapes: bool = True


def compare(
    gated: nn.Module,
    small: nn.Module,
    arguments: Arguments,
    tolerance: float,
    *,
    layers_too: bool = False,
) -> Compared:
    """Compare the outputs of two models in eval that may be run as they are.

    Where the plan names states that come back, they are given back in a second call.
    With `layers_too` the result of each layer counts as well: outputs may hide a difference.
    """
    record = small.__dict__.get("_thinrnn_record")
    keep = _kept_here(gated, record)
    expected = _Run(gated, arguments, keep)
    found = _run_small(small, _small_arguments(gated, arguments, record))
    first = _compared(expected, found, tolerance, layers_too)
    states = {s.argument: s.returned for group in expected.plan.groups for s in group.states}
    if first.problem or not any(states):
        return first
    expected = _Run(gated, expected.given_back(states), keep)
    found = _run_small(small, found.given_back(states))
    again = _compared(expected, found, tolerance, layers_too)
    return again if again.problem else first


def _run_small(small: nn.Module, arguments: Arguments) -> "_Run":
    try:
        return _Run(small, arguments, {})
    except Exception as error:
        raise HardCodedSizeError(
            f"the small model does not run: {type(error).__name__}: {error} "
            f"[{where_in_user_code(error)}]. The line relies on a size that pruning changes; take "
            "the size from the tensor (x.shape[-1]) or leave the group out: plan.without(...)."
        ) from error


def _compared(expected: "_Run", found: "_Run", tolerance: float, layers_too: bool) -> Compared:
    worst, scale = 0.0, 0.0
    wanted, got = list(expected.returned()), list(found.returned())
    if [t.shape for t in wanted] != [t.shape for t in got]:
        return Compared(float("inf"), _other_shapes(wanted, got), same_shapes=False)
    for a, b in zip(wanted, got, strict=True):
        if a.numel():
            worst = max(worst, _distance(a, b))
            scale = max(scale, float(a.nan_to_num().abs().max()) if is_number(a) else 0.0)
    fine = worst <= tolerance * (1 + scale)
    if fine and not layers_too:
        return Compared(worst)
    first = _first_difference(expected, found, tolerance)
    if fine and not first:
        return Compared(worst)
    place = f"; the first module that differs is '{first}'" if first else ""
    problem = (
        f"the small model's outputs differ by {worst:.3g} from the gated model's{place}. If a raw "
        "parameter reads pruned neurons, declare it with plan.using(...)."
    )
    return Compared(worst, problem, first)


class _Run:
    """A call of a model, with the results of its layers; `keep` has the gated neurons that stay."""

    def __init__(self, model: nn.Module, arguments: Arguments, keep: dict[str, Tensor]) -> None:
        self.plan = attached(model).plan if keep else Plan(())
        self.keep = keep
        self.places = places_of(self.plan)
        self.model, self.arguments = model, arguments
        self.layers = layers_of(model)
        self.results: list[tuple[str, Any]] = []
        modules = [
            (layer.module, layer.base, name)
            for name, layer in self.layers.items()
            if not isinstance(layer, NormLayer)  # gates act behind the forward of norms
        ]
        modules += [(m, RNNStack, n) for n, m in model.named_modules() if isinstance(m, RNNStack)]

        def call(name: str, forward: Any, args: Any, kwargs: Any) -> Any:
            result = forward(*args, **kwargs)
            self.results.append((name, result))
            return result

        with intercepted(modules, call):
            self.result = run(model, arguments)

    def _kept(self, name: str, space: str, values: Tensor) -> Tensor:
        mask = kept_in_space(self.layers[name], space, self.places, self.keep)
        return values if mask.all() else values[..., mask.to(values.device)]

    def returned(self) -> Iterator[Tensor]:
        """Yield what the model returned, states as the kept neurons of each layer in turn."""
        states = [state for call in reversed(self.results) for state in self._states(*call)]
        entries_of = {s.returned: s for group in self.plan.groups for s in group.states}
        for path, leaf in named_numbers_in(self.result):
            if path in entries_of:
                yield self._kept_entries(leaf, entries_of[path])
                continue
            for owners, entries in states:
                each = list(zip(owners, entries, strict=True))
                if _is_stack(leaf, entries):
                    yield from (self._kept(*owner, entry) for owner, entry in each)
                    break
                same = [owner for owner, entry in each if _equal(leaf, entry)]
                if same:
                    yield self._kept(*same[0], leaf)
                    break
            else:
                yield leaf

    def _kept_entries(self, leaf: Tensor, state: State) -> Tensor:
        """Return a returned state with the entries that the small model has."""
        mask = kept_in_state(state, self.plan, self.keep, leaf.shape[state.dim])
        return leaf.index_select(state.dim, mask.nonzero().flatten().to(leaf.device))

    def given_back(self, states: dict[str, str]) -> Arguments:
        """Return the arguments of the next call: states as this one has returned them."""
        returned = dict(named_numbers_in(self.result))
        names = iter(argument_names(self.model, self.arguments))

        def next_call(tensor: Tensor) -> Tensor:
            return returned.get(states.get(next(names), ""), tensor)

        chosen: Arguments = map_tensors(self.arguments, next_call)
        return chosen

    def _states(self, name: str, result: Any) -> Iterator[tuple[list[Source], list[Tensor]]]:
        """Yield hidden (and cell) states of a recurrent layer, with the space of each entry."""
        layer = self.layers.get(name)
        if layer is None:  # a stack of single layers
            prefix = f"{name}." if name else ""
            inner = [layer for n, layer in self.layers.items() if n.startswith(prefix)]
            kinds = result[1] if isinstance(result[1], tuple) else (result[1],)
            for kind, entries in enumerate(kinds):
                yield [(la.name, la.state_spaces[kind][0]) for la in inner], list(entries)
        elif layer.is_recurrent:
            for spaces, values in layer.states(layer.state_of(result)):
                yield [(name, space) for space in spaces], list(values)

    def outputs(self) -> Iterator[tuple[str, Tensor]]:
        """Yield each layer call's main result, reduced to the kept channels."""
        for name, result in self.results:
            if name in self.layers and self.keep:
                result = self.layers[name].edit(result, partial(self._kept, name))
            yield name, next(tensors_in(result))


def _kept_here(gated: nn.Module, record: Record | None) -> dict[str, Tensor]:
    """Return which of the gated model's present neurons the small one has."""
    if record is None or not is_attached(gated):
        return {}
    keep = {}
    for name, gate in attached(gated).gates.items():
        kept = torch.tensor(record.kept[name])
        keep[name] = torch.isin(gate.origin.cpu(), kept).nonzero().flatten()
    return keep


def _small_arguments(gated: nn.Module, arguments: Arguments, record: Record | None) -> Arguments:
    """Return the arguments for a small model that expects only the kept input features."""
    if record is None or record.inputs != "kept" or not is_attached(gated):
        return arguments
    inputs = [group for group in record.plan.groups if group.is_input]
    names = iter(argument_names(gated, arguments))

    def narrow(tensor: Tensor) -> Tensor:
        name = next(names)
        for group in inputs:
            axes = [d for d in range(tensor.dim()) if tensor.shape[d] == group.size]
            if axes and name in group.name.split("+"):
                kept = torch.tensor(record.kept[group.name], device=tensor.device)
                return tensor.index_select(axes[-1], kept)
        return tensor

    chosen: Arguments = map_tensors(arguments, narrow)
    return chosen


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())  # nan != nan


def _is_stack(leaf: Tensor, entries: list[Tensor]) -> bool:
    same_shape = leaf.dim() > 0 and leaf.shape[1:] == entries[0].shape
    same_shape = same_shape and len(leaf) == len(entries)
    return same_shape and all(_equal(a, b) for a, b in zip(leaf, entries, strict=True))


def _other_shapes(wanted: list[Tensor], got: list[Tensor]) -> str:
    if len(wanted) != len(got):
        return f"the small model returns {len(got)} tensors, the gated one {len(wanted)}."
    i = next(i for i, (a, b) in enumerate(zip(wanted, got, strict=True)) if a.shape != b.shape)
    return (
        f"output {i} has shape {tuple(got[i].shape)} in the small model and "
        f"{tuple(wanted[i].shape)} in the gated one: a neuron of the plan is returned to the "
        "caller. Leave its group out: plan.without(...)."
    )


def _distance(a: Tensor, b: Tensor) -> float:
    if not is_number(a):
        return float((a != b).any())
    both_nan = a.isnan() & b.isnan()
    return float((a - b).abs().masked_fill(both_nan, 0).max().nan_to_num(nan=float("inf")))


def _first_difference(expected: _Run, found: _Run, limit: float) -> str:
    """Return the name of the first layer whose result differs."""
    seen: dict[str, list[Tensor]] = {}
    for name, values in found.outputs():
        seen.setdefault(name, []).append(values)
    for name, values in expected.outputs():
        if not seen.get(name):
            continue
        got = seen[name].pop(0)
        if got.shape != values.shape:
            return name
        if _distance(values, got) > limit * (1 + float(values.abs().max())):
            return name
    return ""
