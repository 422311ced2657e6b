"""The weights that each neuron owns, as one norm per neuron: what the baselines judge by."""

import torch
from torch import Tensor, nn

from thinrnn.plan import Group, Slice, named_tensors


def weight_slices(model: nn.Module, group: Group) -> list[tuple[Tensor, Slice]]:
    """Return the matrices of a group with their slices; biases are not weights."""
    tensors = named_tensors(model)
    found = [(tensors[s.parameter], s) for s in group.slices]
    return [(t, s) for t, s in found if isinstance(t, nn.Parameter) and t.dim() > 1]


def squared_norms(model: nn.Module, group: Group) -> Tensor:
    """Return the sum of squares of all weights that each neuron owns, differentiable."""
    pairs = weight_slices(model, group)
    total = torch.zeros(group.size, device=pairs[0][0].device, dtype=pairs[0][0].dtype)
    for tensor, s in pairs:
        positions, neurons = (i.to(tensor.device) for i in s.index())
        others = [d for d in range(tensor.dim()) if d != s.dim % tensor.dim()]
        along = tensor.square().sum(others)
        total = total.index_add(0, neurons, along[positions])
    return total
