"""The model that is exported, run on its example."""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._model.copying import copy_module, kept_attributes
from thinrnn._model.tree import paths_in, tensors_in
from thinrnn.errors import ExampleError
from thinrnn.onnx._trace.arguments import Arguments, unique
from thinrnn.onnx._trace.axes import Place, distinct_sizes, find_axes, named, resized, varied
from thinrnn.onnx._trace.given_states import at_own_width, fed_back, made_of
from thinrnn.onnx._trace.layers import LayerCalls, record_layers


class Subject:
    """A model with its inputs, whose axes all differ in size, its layer calls and its outputs."""

    def __init__(
        self, model: nn.Module, example: Any, *, fixed: Collection[Place] = frozenset()
    ) -> None:
        self.model = model
        self.arguments = Arguments(model, at_own_width(model, example))
        first = self.arguments.tensors
        try:
            self.run(first)
        except Exception as error:
            raise ExampleError(f"the model does not run on the example: {error}") from error
        found = find_axes(first, self.shapes_at)
        axes = [axis for axis in found if not set(fixed) & set(axis.places)]
        sizes = distinct_sizes(axes, first, self.shapes_at)
        self.inputs = varied(resized(first, sizes), seed=0)
        result, self.calls = record_layers(model, lambda: self._call(self.inputs))
        self.outputs = list(tensors_in(result))
        if not self.outputs:
            raise ExampleError("the model returns no tensor, so there is nothing to export.")
        self.feeds = self._feeds()
        taken = any(name.partition(".")[0] == "output" for name in self.arguments.names)
        self.output_names = _names(result, "result" if taken else "output", len(self.outputs))
        self.axes = named(axes, _sizes_seen(self.calls), sizes)
        self.batch = next(
            (sizes[old] for old, new in zip(axes, self.axes, strict=True) if new.name == "batch"), 1
        )

    def _feeds(self) -> dict[int, int]:
        """Return which input takes the next value of which output, by their places."""
        distinct = [torch.randn_like(t) if t.is_floating_point() else t for t in self.inputs]
        try:
            result, calls = record_layers(self.model, lambda: self._call(distinct))
        except Exception:  # an input has to have certain values, as lengths have
            return {}
        return fed_back(distinct, list(tensors_in(result)), calls.given, calls.last)

    @property
    def time_axes(self) -> dict[str, int]:
        """The dimension of the time in each input that has one."""
        return {
            self.arguments.names[which]: dim
            for axis in self.axes
            if axis.name == "time"
            for which, dim in axis.places
        }

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs for other inputs."""
        with torch.no_grad():
            return list(tensors_in(self._call(tensors)))

    def run_in_float64(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs without float32's rounding."""
        wide = [t.double() if t.is_floating_point() else t.clone() for t in tensors]
        with torch.no_grad():
            return list(tensors_in(self.arguments.call(copy_module(self.model).double(), wide)))

    def shapes_at(self, tensors: Sequence[Tensor]) -> Any:
        """Return the shapes that the model's layers and outputs have; None if it does not run."""
        try:
            result, calls = record_layers(self.model, lambda: self._call(tensors))
        except Exception:
            return None
        layers = [(layer.steps, layer.batch) for layer in calls.layers]
        return layers, calls.cell_batches, [t.shape for t in tensors_in(result)]

    def _call(self, tensors: Sequence[Tensor]) -> Any:
        with kept_attributes(self.model):
            return self.arguments.call(self.model, [t.clone() for t in tensors])

    def outputs_without_states(self) -> list[int]:
        """Return the places of the outputs that are no states of recurrent layers."""
        last = self.calls.last
        kept = [place for place, one in enumerate(self.outputs) if not made_of(one, last)]
        return kept or list(range(len(self.outputs)))


def _names(result: Any, name: str, count: int) -> list[str]:
    try:
        return unique(list(paths_in(result, name)))
    except RecursionError:  # it holds itself
        return unique([name] * count)


def _sizes_seen(calls: LayerCalls) -> dict[int, str]:
    """Return the names of the sizes that are time or batch of recurrent layers."""
    names: dict[int, str] = {size: "batch" for size in calls.cell_batches}
    for layer in calls.layers:
        names |= {layer.steps: "time", layer.batch: "batch"}
    return names
