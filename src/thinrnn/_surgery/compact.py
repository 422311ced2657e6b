"""compact: from a gated model to a small plain one with the same outputs."""

import warnings
from typing import Any, Literal

import torch
from torch import nn

from thinrnn._gates.attach import Attached, attached
from thinrnn._gates.scaled_weight import scale
from thinrnn._surgery.cut import (
    Keep,
    Positions,
    follow_tensors,
    kept_positions,
    restore_rnns,
    select,
)
from thinrnn._surgery.full_width_inputs import make_picks, set_picks_
from thinrnn._surgery.keep import neurons_to_keep
from thinrnn._surgery.provenance import Record, find_record, set_record_
from thinrnn.errors import PlanError
from thinrnn.plan import named_tensors


def compact(
    model: nn.Module, *, round_to: int = 1, inputs: Literal["same", "kept"] = "same"
) -> nn.Module:
    """Return a new small model without gates that gives the outputs of the gated one in eval.

    Gates are folded into the weights, then closed neurons are cut off. `round_to` rounds sizes up
    to a multiple by keeping the best of the closed neurons; those that `shrink_` has removed are
    gone, so after it a size may stay below the multiple, with a warning. With `inputs="kept"` the
    small model expects only the input features in `kept_inputs(small)`; otherwise it takes the same
    input as before and picks them itself. The gated model is left as it is.
    """
    if round_to < 1:
        raise PlanError(f"round_to={round_to}: sizes are rounded up to a multiple of 1 or more.")
    if inputs not in ("same", "kept"):
        raise PlanError(f"inputs='{inputs}': it is 'same' or 'kept'.")
    gated = attached(model)
    is_open = {name: gate.keep for name, gate in gated.gates.items()}
    keep, remarks = neurons_to_keep(gated, is_open, round_to=round_to)
    for remark in remarks:
        warnings.warn(f"{remark}.", stacklevel=2)
    return small_copy(gated, keep, inputs=inputs)


def small_copy(gated: Attached, keep: Keep, *, inputs: str = "same") -> nn.Module:
    """Return a copy of the model with gates folded in and everything but `keep` cut off."""
    positions = kept_positions(gated.model, gated.plan, keep)
    small = gated.copy_without(_small_tensors(gated, positions))
    small, _ = follow_tensors(small, set(positions))
    small, _ = restore_rnns(small, gated.rnns())
    total = {name: gated.gates[name].origin.cpu()[kept] for name, kept in keep.items()}
    full_inputs = inputs == "same"
    set_picks_(small, make_picks(gated.layers, gated.first_plan, total, full_inputs=full_inputs))
    kept = {name: index.tolist() for name, index in total.items()}
    set_record_(small, Record(gated.first_plan, kept, inputs, find_record(gated.model)))
    return small


@torch.no_grad()
def _small_tensors(gated: Attached, positions: Positions) -> dict[int, Any]:
    """Return what replaces each tensor that is cut or gated, by the tensor's id.

    Cutting comes first, so that no large copy is ever made.
    """
    values = {name: gate.value for name, gate in gated.gates.items()}
    readers = {r.name: r for r in gated.readers}
    tensors = named_tensors(gated.model)
    tied = {id(tensors[name]): reader for name, reader in readers.items()}
    small: dict[int, Any] = {}
    for name, tensor in tensors.items():
        reader = tied.get(id(tensor))
        if id(tensor) in small or (name not in positions and reader is None):
            continue
        left = positions.get(name, {})
        new = select(tensor.detach(), left)
        if reader is not None:
            factors = reader.factors(values)
            if reader.dim in left:
                factors = factors[left[reader.dim].to(factors.device)]
            new = scale(new, factors, reader.dim)
        if isinstance(tensor, nn.Parameter):
            new = nn.Parameter(new, requires_grad=tensor.requires_grad)
        small[id(tensor)] = new
    return small
