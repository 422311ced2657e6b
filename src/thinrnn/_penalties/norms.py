"""The weights that each neuron owns, as one norm per neuron: what the baselines judge by."""

import functools
from itertools import combinations

import torch
from torch import Tensor, nn

from thinrnn.plan import Group, Slice, named_tensors


def weight_slices(model: nn.Module, group: Group) -> list[tuple[Tensor, Slice]]:
    """Return the matrices of a group with their slices, tied ones once; biases are not weights."""
    tensors = named_tensors(model)
    found = {
        (id(tensors[s.parameter]), s.dim, s.runs): (tensors[s.parameter], s) for s in group.slices
    }
    return [(t, s) for t, s in found.values() if isinstance(t, nn.Parameter) and t.dim() > 1]


@functools.lru_cache(maxsize=256)
def index_on(device: torch.device, s: Slice) -> tuple[Tensor, Tensor]:
    """Return positions and neurons of a slice on a device, moved there once.

    A CUDA graph cannot copy from the host, so a step that is captured must find them there.
    """
    positions, neurons = s.index()
    return positions.to(device), neurons.to(device)


def squared_norms(model: nn.Module, group: Group) -> Tensor:
    """Return the sum of squares of all weights that each neuron owns, differentiable."""
    pairs = weight_slices(model, group)
    total = torch.zeros(group.size, device=pairs[0][0].device, dtype=pairs[0][0].dtype)
    for tensor, s in pairs:
        positions, neurons = index_on(tensor.device, s)
        others = [d for d in range(tensor.dim()) if d != s.dim]
        along = tensor.square().sum(others)
        total = total.index_add(0, neurons, along.index_select(0, positions))
    for (tensor, a), (other, b) in combinations(pairs, 2):
        if tensor is other and a.dim != b.dim:
            total = total - _owned_twice(tensor, a, b, group.size)
    return total


def _owned_twice(tensor: Tensor, a: Slice, b: Slice, size: int) -> Tensor:
    """Return the squares of what a neuron owns by row and by column: the diagonal of U."""
    total = tensor.new_zeros(size)
    for p, n, length in a.runs:
        for q, m, other in b.runs:
            first, end = max(n, m), min(n + length, m + other)
            if first < end:
                block = tensor.narrow(a.dim, p + first - n, end - first)
                block = block.narrow(b.dim, q + first - m, end - first)
                shared = block.diagonal(0, a.dim, b.dim).square()  # (..., neurons)
                shared = shared.flatten(0, -2).sum(0) if shared.dim() > 1 else shared
                total = total.index_add(0, torch.arange(first, end, device=total.device), shared)
    return total
