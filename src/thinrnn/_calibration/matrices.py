"""The matrices that read gated neurons: what prune scores and refits.

A matrix W (O, P) computes y = W x + b. Position p of x belongs to a neuron of some group, or to
none. Removing neurons removes columns; least squares on the moments of x finds the best values of
the columns that stay.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from thinrnn._calibration.activations import Reads, bias_of, output_of, reads_of
from thinrnn._layers.base import Layer
from thinrnn._layers.registry import layer_of, layers_of
from thinrnn.plan import Plan, named_tensors


@dataclass
class Matrix:
    """One weight that reads neurons, with every place where the model calls it.

    Attributes:
        name: The parameter's first name in the model.
        taps: Columns for each position of the plan: the kernel size of a convolution, else 1.
        columns: For each group, the columns (n, k) that neuron j owns; -1 where it owns fewer.
        bias: The name of the bias that can take up the means of removed neurons, or "".
        is_free: Whether its columns may change: nothing else depends on their values.
        output: Matrices of one name add up: input and recurrent weights of one layer.
    """

    name: str
    taps: int
    columns: dict[str, Tensor]
    bias: str = ""
    is_free: bool = True
    output: str = ""
    places: list[tuple[str, str]] = field(default_factory=list)  # (module, parameter there)


def find_matrices(model: nn.Module, plan: Plan) -> dict[str, Matrix]:
    """Return the matrices that read the plan's neurons and whose input can be recorded, by name."""
    tensors = named_tensors(model)
    first_name: dict[int, str] = {}
    for name, tensor in tensors.items():
        first_name.setdefault(id(tensor), name)
    layers = layers_of(model)
    produced = {
        (id(tensors[s.parameter]), s.dim) for g in plan for s in g.slices if s.role == "produce"
    }
    found: dict[str, Matrix] = {}
    for group in plan.groups:
        for s in group.slices:
            tensor = tensors[s.parameter]
            if s.role != "read" or s.dim != 1 or tensor.dim() < 2:
                continue
            name = first_name[id(tensor)]
            if name not in found:
                places = _places(layers, tensors, tensor)
                if not places:
                    continue
                module, parameter = places[0]
                bias = layers[module].full_name(bias_of(layers[module], parameter))
                found[name] = Matrix(
                    name,
                    taps=tensor[0, 0].numel(),
                    columns={},
                    bias=bias if len(places) == 1 and _is_parameter(tensors.get(bias)) else "",
                    is_free=(id(tensor), 1) not in produced,
                    output=f"{module}:{output_of(layers[module], parameter)}",
                    places=places,
                )
            matrix = found[name]
            if group.name not in matrix.columns:
                matrix.columns[group.name] = _columns(*s.index(), group.size, matrix.taps)
    return found


def columns_left(matrix: Matrix, width: int, chosen: dict[str, Tensor]) -> Tensor:
    """Return the columns of a matrix, as indices, that some neurons leave."""
    left = torch.ones(width, dtype=torch.bool)
    for group, columns in matrix.columns.items():
        gone = columns[~chosen[group]].flatten()
        left[gone[gone >= 0]] = False
    return left.nonzero().flatten()


def _places(
    layers: dict[str, Layer], tensors: dict[str, Tensor], tensor: Tensor
) -> list[tuple[str, str]]:
    """Return the layers that multiply by a tensor and show what they read."""
    own = (name.rpartition(".") for name, other in tensors.items() if other is tensor)
    return [
        (module, parameter)
        for module, _, parameter in own
        if module in layers and reads_of(layers[module]) is not None and not layers[module].computed
    ]


def _is_parameter(tensor: Tensor | None) -> bool:
    return isinstance(tensor, nn.Parameter)


def _columns(positions: Tensor, neurons: Tensor, size: int, taps: int) -> Tensor:
    """Return the columns (n, k) of each neuron; neurons with fewer than k are filled up with -1."""
    owned: list[list[int]] = [[] for _ in range(size)]
    for position, neuron in zip(positions.tolist(), neurons.tolist(), strict=True):
        owned[neuron] += range(position * taps, (position + 1) * taps)
    k = max(map(len, owned))
    return torch.tensor([row + [-1] * (k - len(row)) for row in owned])


def reads_by_module(
    model: nn.Module, matrices: dict[str, Matrix]
) -> dict[str, tuple[Layer, Reads, dict[str, str]]]:
    """Return, per module to watch, how to read it and which of its parameters are which matrix."""
    watched: dict[str, tuple[Layer, Reads, dict[str, str]]] = {}
    for matrix in matrices.values():
        for name, parameter in matrix.places:
            layer = layer_of(name, model.get_submodule(name), model)
            assert layer is not None
            reads = reads_of(layer)
            assert reads is not None
            watched.setdefault(name, (layer, reads, {}))[2][parameter] = matrix.name
    return watched
