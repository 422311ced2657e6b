"""What the gates look like, in numbers for metrics.jsonl and pattern.json."""

import itertools
from typing import Any

import torch
from torch import Tensor, nn

import thinrnn
from thinrnn._gates.attach import attached, is_attached
from thinrnn._surgery.cut import neurons_to_keep
from thinrnn.plan import Plan, named_tensors

BINS = 200


def gate_state(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Return per group: neurons kept, neurons at the start, gate values by original neuron."""
    kept: dict[str, int] = {}
    sizes: dict[str, int] = {}
    values: dict[str, list[float]] = {}
    found = thinrnn.gates(model) if is_attached(model) else {}
    for name, gate in found.items():
        row = torch.zeros(gate.full_size)
        row[gate.origin.cpu()] = gate.value.detach().float().cpu()
        kept[name] = int(gate.keep.sum())
        sizes[name] = gate.full_size
        values[name] = [round(v, 4) for v in binned(row).tolist()]
    return {"kept": kept, "sizes": sizes, "values": values}


def binned(row: Tensor) -> Tensor:
    """Return a row of at most BINS numbers, means of equal shares of the row."""
    if len(row) <= BINS:
        return row
    edges = torch.linspace(0, len(row), BINS + 1).round().long().tolist()
    return torch.stack([row[a:b].mean() for a, b in itertools.pairwise(edges)])


def params_kept(model: nn.Module) -> int:
    """Return how many parameters a model has; a gated one, if it is compacted now."""
    return thinrnn.count(model).params


def kept_in(model: nn.Module) -> dict[str, list[int]]:
    """Return the original neurons of a gated model that `compact` keeps now."""
    gated = attached(model)
    keep, _ = neurons_to_keep(gated, {name: gate.keep for name, gate in gated.gates.items()})
    return {name: gate.origin.cpu()[keep[name]].tolist() for name, gate in gated.gates.items()}


def pattern(model: nn.Module, plan: Plan, kept: dict[str, list[int]]) -> dict[str, Any]:
    """Return which rows and columns of each weight matrix of the dense model are kept."""
    gone: dict[tuple[str, int], set[int]] = {}
    for group in plan.groups:
        stays = set(kept[group.name])
        for piece in group.slices:
            positions, neurons = piece.index()
            lost = {
                p
                for p, n in zip(positions.tolist(), neurons.tolist(), strict=True)
                if n not in stays
            }
            gone.setdefault((piece.parameter, piece.dim), set()).update(lost)
    matrices = []
    for name, tensor in named_tensors(model).items():
        if tensor.dim() != 2:
            continue
        rows, columns = tensor.shape
        left = {
            dim: sorted(set(range(size)) - gone[name, dim]) if gone.get((name, dim)) else None
            for dim, size in ((0, rows), (1, columns))
        }
        matrices.append(
            {
                "name": name.removesuffix(".weight"),
                "rows": rows,
                "columns": columns,
                "kept_rows": left[0],
                "kept_columns": left[1],
            }
        )
    return {"matrices": matrices}
