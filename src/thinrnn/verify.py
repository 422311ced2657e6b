"""verify: the proof that the small model does what the gated one does."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from thinrnn.attach import Attached, attached, is_attached
from thinrnn.errors import HardCodedSizeError, VerifyError
from thinrnn.layers import CellLayer, Layer, RNNLayer, layer_of
from thinrnn.pick import space_kept
from thinrnn.record import Record
from thinrnn.sandbox import copy_module, fresh_copy, precision_of, run, where_in_user_code
from thinrnn.tree import Arguments, call_arguments, map_tensors, tensors_in

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def verify(
    gated: nn.Module, small: nn.Module, example: Any, *, tolerance: float | None = None
) -> float:
    """Return the largest difference between the outputs of the two models in eval.

    Both are run on copies, in float64 where they allow it. Raises, with the first module that
    differs, when the difference is above `tolerance` times the size of the outputs. By default
    that is 1e-10 for a model in float64; in float32, where folding a gate into a weight rounds the
    weight, 1e-5; in 16 bits 3e-2. Returned states are compared on the neurons that were kept.
    """
    if tolerance is None:
        tolerance = TOLERANCE.get(precision_of(small), 3e-2)
    large, given = fresh_copy(gated, call_arguments(example))
    little = copy_module(small).eval()
    if precision_of(large) == torch.float64:
        little = little.double()
    return compare(large, little, given, tolerance)


def compare(
    gated: nn.Module, small: nn.Module, arguments: Arguments, tolerance: float
) -> float:
    """Return the largest difference of two models in eval that may be run as they are."""
    record = small.__dict__.get("_thinrnn_record")
    keep = _local_keep(gated, record)
    expected = _Run(gated, arguments, keep)
    try:
        found = _Run(small, _small_arguments(gated, arguments, record), None)
    except Exception as error:
        raise HardCodedSizeError(
            f"the small model does not run: {type(error).__name__}: {error} "
            f"[{where_in_user_code(error)}]. The line relies on a size that pruning changes; take "
            "the size from the tensor (x.shape[-1]) or leave the group out: plan.without(...)."
        ) from error
    worst, scale = 0.0, 0.0
    ours = tensors_in(found.result)
    for i, leaf in enumerate(tensors_in(expected.result)):
        wanted = expected.kept_part(leaf)
        for want, got in zip(wanted, _take(ours, leaf, len(wanted)), strict=True):
            if want.shape != got.shape:
                raise VerifyError(
                    f"output {i} has shape {tuple(got.shape)} in the small model and "
                    f"{tuple(want.shape)} in the gated one: a neuron of the plan is returned to "
                    "the caller. Leave its group out: plan.without(...)."
                )
            if want.numel():
                worst = max(worst, _distance(want, got))
                scale = max(scale, float(want.abs().max()) if want.is_floating_point() else 0.0)
    if not worst <= tolerance * (1 + scale):
        raise VerifyError(
            f"the small model's outputs differ by {worst:.3g} from the gated model's"
            f"{_first_difference(expected, found, tolerance)}. If a raw parameter reads pruned "
            "neurons, declare it with plan.using(...)."
        )
    return worst


class _Run:
    """A call of a model, with the results of its layers; gated ones reduced to what is kept."""

    def __init__(self, model: nn.Module, arguments: Arguments, keep: Any) -> None:
        self.gated: Attached | None = attached(model) if is_attached(model) else None
        self.keep = keep
        self.layers: dict[str, Layer] = {}
        self.results: list[tuple[str, Any]] = []
        handles = []
        for name, module in model.named_modules():
            layer = layer_of(name, module)
            if layer is not None:
                self.layers[name] = layer
            if layer is not None or type(module).__name__ == "RNNStack":
                handles.append(module.register_forward_hook(self._hook(name)))
        try:
            self.result = run(model, arguments)
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, name: str) -> Any:
        return lambda module, args, result: self.results.append((name, result))

    def mask(self, name: str, space: str) -> Tensor:
        layer = self.layers[name]
        if self.gated is None or self.keep is None:
            return torch.ones(layer.spaces[space].size, dtype=torch.bool)
        return space_kept(layer, space, self.gated.plan, self.keep)

    def kept_part(self, leaf: Tensor) -> list[Tensor]:
        """Return a returned tensor as it is, or, if it is a state, its kept neurons by layer."""
        for name, result in reversed(self.results):
            layer = self.layers.get(name)
            if isinstance(layer, RNNLayer):
                for spaces, state in layer.states(result[1]):
                    if state.shape == leaf.shape and torch.equal(state, leaf):
                        masks = [self.mask(name, s).to(leaf.device) for s in spaces]
                        if len(masks) == 1 or all(m.all() for m in masks):
                            return [leaf[..., masks[0]]]
                        return [v[..., m] for v, m in zip(leaf, masks, strict=True)]
            elif isinstance(layer, CellLayer):
                for state in tensors_in(result):
                    if state.shape == leaf.shape and torch.equal(state, leaf):
                        return [leaf[..., self.mask(name, "output").to(leaf.device)]]
        return [leaf]

    def outputs(self) -> Iterator[tuple[str, Tensor]]:
        """Yield each layer call's main result, reduced to the kept channels."""
        for name, result in self.results:
            layer = self.layers.get(name)
            main = result[0] if isinstance(result, tuple) else result
            values = main.data if isinstance(main, PackedSequence) else main
            if layer is not None and self.gated is not None:
                tops = layer.parts[-(1 + layer.module.bidirectional) :] if isinstance(
                    layer, RNNLayer
                ) else ["output"]
                mask = torch.cat([self.mask(name, top) for top in tops]).to(values.device)
                axis = getattr(layer, "axis", -1 if "input" in layer.spaces else 1)
                if type(layer).__name__ == "EmbeddingLayer":
                    axis = -1
                values = values.movedim(axis, -1)[..., mask].movedim(-1, axis)
            yield name, values


def _local_keep(gated: nn.Module, record: Record | None) -> Any:
    """Return which of the gated model's present neurons the small one has."""
    if record is None or not is_attached(gated):
        return None
    keep = {}
    for name, gate in attached(gated).gates.items():
        kept = torch.tensor(record.kept[name])
        keep[name] = torch.isin(gate.origin.cpu(), kept).nonzero().flatten()
    return keep


def _small_arguments(gated: nn.Module, arguments: Arguments, record: Record | None) -> Arguments:
    """Return the arguments for a small model that expects only the kept input features."""
    if record is None or record.inputs != "kept" or not is_attached(gated):
        return arguments
    import inspect

    names = list(inspect.signature(gated.forward).parameters)
    args, kwargs = arguments

    def picked(name: str, value: Any) -> Any:
        if name not in record.kept:
            return value
        size, kept = record.plan[name].size, torch.tensor(record.kept[name])

        def pick(tensor: Tensor) -> Tensor:
            axes = [d for d in range(tensor.dim()) if tensor.shape[d] == size]
            return tensor.index_select(axes[-1], kept.to(tensor.device)) if axes else tensor

        return map_tensors(value, pick)

    new_args = tuple(picked(names[i], a) if i < len(names) else a for i, a in enumerate(args))
    return new_args, {k: picked(k, v) for k, v in kwargs.items()}


def _take(leaves: Iterator[Tensor], like: Tensor, parts: int) -> list[Tensor]:
    """Return the next tensor, or as many as a state has parts: stacked in one, or one by one."""
    first = next(leaves, torch.empty(0))
    if parts == 1:
        return [first]
    if first.dim() == like.dim():
        return list(first)
    return [first, *(next(leaves, torch.empty(0)) for _ in range(parts - 1))]


def _distance(a: Tensor, b: Tensor) -> float:
    if not a.is_floating_point():
        return float((a != b).any())
    both_nan = a.isnan() & b.isnan()
    return float((a - b).abs().masked_fill(both_nan, 0).max().nan_to_num(nan=float("inf")))


def _first_difference(expected: _Run, found: _Run, limit: float) -> str:
    seen: dict[str, list[Tensor]] = {}
    for name, values in found.outputs():
        seen.setdefault(name, []).append(values)
    for name, values in expected.outputs():
        if name not in seen or not seen[name]:
            continue
        got = seen[name].pop(0)
        if got.shape != values.shape:
            return f"; the first that differs is '{name}', by its shape"
        if _distance(values, got) > limit * (1 + float(values.abs().max())):
            return f"; the first module that differs is '{name}'"
    return ""


