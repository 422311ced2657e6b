"""A model at work on its example, as the export sees it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._model.copying import kept_attributes
from thinrnn._model.tree import paths_in, tensors_in
from thinrnn.errors import ExampleError
from thinrnn.onnx._trace.arguments import Arguments, unique
from thinrnn.onnx._trace.axes import distinct_sizes, find_axes, named, resized, varied
from thinrnn.onnx._trace.layers import LayerCalls, watch_layers


class Subject:
    """A model at work: its inputs with every axis of a size of its own, its layers, its outputs."""

    def __init__(self, model: nn.Module, example: Any) -> None:
        self.model = model
        self.arguments = Arguments(model, example)
        first = self.arguments.tensors
        try:
            self.run(first)
        except Exception as error:
            raise ExampleError(f"the model does not run on the example: {error}") from error
        axes = find_axes(first, self.shapes_at)
        sizes = distinct_sizes(axes, first, self.shapes_at)
        self.inputs = varied(resized(first, sizes), seed=0)
        result, self.watch = watch_layers(model, lambda: self._call(self.inputs))
        self.outputs = list(tensors_in(result))
        if not self.outputs:
            raise ExampleError("the model returns no tensor, so there is nothing to export.")
        taken = any(name.partition(".")[0] == "output" for name in self.arguments.names)
        self.output_names = _names(result, "result" if taken else "output", len(self.outputs))
        self.axes = named(axes, _sizes_seen(self.watch), sizes)
        self.batch = next(
            (sizes[old] for old, new in zip(axes, self.axes, strict=True) if new.name == "batch"), 1
        )

    @property
    def time_axes(self) -> dict[str, int]:
        """Where the time is in each input that has one."""
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

    def shapes_at(self, tensors: Sequence[Tensor]) -> Any:
        """Return the shapes that the model's layers and outputs have; None if it does not run."""
        try:
            result, watch = watch_layers(self.model, lambda: self._call(tensors))
        except Exception:
            return None
        layers = [(layer.steps, layer.batch) for layer in watch.layers]
        return layers, watch.cell_batches, [t.shape for t in tensors_in(result)]

    def _call(self, tensors: Sequence[Tensor]) -> Any:
        with kept_attributes(self.model):
            return self.arguments.call(self.model, [t.clone() for t in tensors])

    def outputs_without_states(self) -> list[int]:
        """Return which outputs are something else than states of recurrent layers."""
        last = self.watch.last
        kept = [place for place, one in enumerate(self.outputs) if not _made_of(one, last)]
        return kept or list(range(len(self.outputs)))


def _names(result: Any, name: str, count: int) -> list[str]:
    try:
        return unique(list(paths_in(result, name)))
    except RecursionError:  # it holds itself
        return unique([name] * count)


def _made_of(output: Tensor, states: Sequence[Tensor]) -> bool:
    if output.dim() < 2:
        return False
    rows = output.reshape(-1, *output.shape[-2:])
    return all(any(torch.equal(row, state) for state in states) for row in rows)


def _sizes_seen(watch: LayerCalls) -> dict[int, str]:
    """Return which sizes are the time and the batch of recurrent layers."""
    names: dict[int, str] = {size: "batch" for size in watch.cell_batches}
    for layer in watch.layers:
        names |= {layer.steps: "time", layer.batch: "batch"}
    return names
