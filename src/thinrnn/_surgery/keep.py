"""Which neurons stay: those whose gates are open, and one wherever none would be left."""

from collections.abc import Mapping

import torch
from torch import Tensor

from thinrnn._gates.attach import Attached
from thinrnn._surgery.cut import Keep, kept_positions
from thinrnn.plan import named_tensors

BEST = "; the best is kept, so that the model still runs"


@torch.no_grad()
def neurons_to_keep(
    gated: Attached, is_open: Mapping[str, Tensor], *, round_to: int = 1
) -> tuple[Keep, list[str]]:
    """Return the neurons to keep in each group, and remarks on sizes other than expected."""
    keep: Keep = {}
    ranks: dict[str, Tensor] = {}
    remarks = []
    for name, gate in gated.gates.items():
        gate.check()
        opened = is_open[name].cpu()
        wanted = -(-max(int(opened.sum()), 1) // round_to) * round_to
        if not opened.any():
            remarks.append(f"all {gate.size} neurons of group '{name}' are closed{BEST}")
        if gate.size < min(wanted, gate.full_size):
            remarks.append(
                f"group '{name}' cannot be rounded up to {wanted}: shrink_ has removed its closed "
                f"neurons, and {gate.size} are left"
            )
        rank = gate.log_alpha.detach().cpu().double() + opened * 1e12
        ranks[name] = rank.nan_to_num(neginf=-1e9)
        keep[name] = torch.topk(ranks[name], min(wanted, gate.size)).indices.sort().values
    _fill_empty(gated, keep, ranks, remarks)
    return keep, remarks


def _fill_empty(gated: Attached, keep: Keep, ranks: dict[str, Tensor], remarks: list[str]) -> None:
    """Add the best neuron wherever a tensor would have none left along a dimension.

    A tensor may read just a part of a group: one of two layers that share the input features.
    """
    tensors = named_tensors(gated.model)
    while empty := _first_empty(gated, keep):
        name, dim = empty
        remarks.append(f"all neurons in '{name}', dim {dim}, are closed{BEST}")
        owners = [
            (group.name, neuron)
            for group in gated.plan.groups
            for s in group.slices
            if tensors[s.parameter] is tensors[name] and s.dim == dim
            for neuron in s.index()[1].tolist()
        ]
        group, best = max(owners, key=lambda owner: float(ranks[owner[0]][owner[1]]))
        keep[group] = torch.cat([keep[group], torch.tensor([best])]).sort().values


def _first_empty(gated: Attached, keep: Keep) -> tuple[str, int] | None:
    for name, dims in kept_positions(gated.model, gated.plan, keep).items():
        for dim, left in dims.items():
            if not len(left):
                return name, dim
    return None
