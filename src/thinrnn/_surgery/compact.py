"""compact: from a gated model to a small plain one with the same outputs."""

import warnings
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from thinrnn._gates.attach import attached
from thinrnn._gates.attached import Attached
from thinrnn._gates.scaled_weight import scale
from thinrnn._layers.computed import Computed, norm_except, norms_of, with_lengths
from thinrnn._surgery.cut import (
    Keep,
    Positions,
    cut_tensor,
    follow_tensors,
    kept_positions,
    neurons_to_keep,
    restore_rnns,
    set_attributes_,
)
from thinrnn._surgery.full_width_inputs import add_hooks_, full_width_inputs
from thinrnn._surgery.provenance import Record, find_record, set_record_
from thinrnn.errors import PlanError
from thinrnn.plan import named_tensors


class Limit(Protocol):
    """What `compact` and `verify` need from a `Target`."""

    def final_log_alpha(self) -> dict[str, Tensor]:
        """Return `log_alpha` of each group as the final limit would leave it."""
        ...


def compact(
    model: nn.Module,
    *,
    target: Limit | None = None,
    round_to: int = 1,
    inputs: Literal["same", "kept"] = "same",
) -> nn.Module:
    """Return a new small model without gates that gives the outputs of the gated one in eval.

    Gates are folded into the weights, then closed neurons are cut off. The gated model is left as
    it is.

    Args:
        model: A model with gates, from `attach_`.
        target: The `Target` of a training that was cut short: its final limit is applied first.
            Without it the gates are taken as they are.
        round_to: Round sizes up to a multiple by keeping the best of the closed neurons. Neurons
            that `shrink_` has removed are gone, so after it a size may stay below the multiple,
            with a warning.
        inputs: With "kept" the small model expects only the input features that
            `kept_inputs(small)` lists; with "same" it takes the same input as before and selects
            them itself.

    Returns:
        A model of the same class. An `nn.LSTM` whose layers get unequal sizes becomes an
        `RNNStack`, called in the same way.

    Raises:
        GateError: The model has no gates, or they are NaN.
        PlanError: `round_to` or `inputs` is none of the values above, or `round_to` is above 1 and
            the plan goes through norms.

    Example:
        >>> model = nn.Sequential(nn.Embedding(50, 16), nn.LSTM(16, 32))
        >>> tokens = torch.randint(50, (10, 4))
        >>> _ = thinrnn.attach_(model, thinrnn.find_groups(model, tokens))
        >>> thinrnn.gates(model)["0"].log_alpha = torch.tensor([9.0] * 4 + [-9.0] * 12)
        >>> thinrnn.compact(model)[0]
        Embedding(50, 4)
    """
    if round_to < 1:
        raise PlanError(f"round_to={round_to}: sizes are rounded up to a multiple of 1 or more.")
    if inputs not in ("same", "kept"):
        raise PlanError(f"inputs='{inputs}': write 'same' or 'kept'.")
    gated = attached(model)
    if round_to > 1 and gated.norms:
        raise PlanError(
            f"round_to={round_to} keeps closed neurons, which the norms in this plan would count: "
            "leave it at 1."
        )
    final = {} if target is None else target.final_log_alpha()
    values = {
        name: gate.estimator.value(final.get(name, gate.wide_log_alpha.detach()))
        for name, gate in gated.gates.items()
    }
    is_open = {name: value > 0 for name, value in values.items()}
    keep, remarks = neurons_to_keep(gated, is_open, round_to=round_to)
    for remark in remarks:
        warnings.warn(f"{remark}.", stacklevel=2)
    return small_copy(gated, keep, values=values, inputs=inputs)


def small_copy(
    gated: Attached, keep: Keep, *, values: dict[str, Tensor] | None = None, inputs: str = "same"
) -> nn.Module:
    """Return a copy of the model with gates folded in, and only `keep` left.

    The gates are those of eval, or the `values`.
    """
    if values is None:
        values = {name: gate.value for name, gate in gated.gates.items()}
    positions = kept_positions(gated.model, gated.plan, keep)
    small = gated.copy_without(_small_tensors(gated, values, positions))
    small, _ = follow_tensors(small, set(positions))
    small, _ = restore_rnns(small, gated.rnns())
    set_attributes_(small, gated.plan, keep)
    total = {name: gated.gates[name].origin.cpu()[kept] for name, kept in keep.items()}
    full = inputs == "same"
    hooks = full_width_inputs(gated.model, gated.layers, gated.first_plan, total, full_inputs=full)
    add_hooks_(small, hooks)
    kept = {name: index.tolist() for name, index in total.items()}
    set_record_(small, Record(gated.first_plan, kept, inputs, find_record(gated.model)))
    return small


@torch.no_grad()
def _small_tensors(
    gated: Attached, values: dict[str, Tensor], positions: Positions
) -> dict[int, Any]:
    """Return what replaces each tensor that is cut or gated, by the tensor's id.

    Cutting comes first, so that no large copy is ever made.
    """
    parts = (part for r in gated.readers for part in (r, r.lengths) if part is not None)
    readers = {part.name: part for part in parts}
    tensors = named_tensors(gated.model)
    tied = {id(tensors[name]): reader for name, reader in readers.items()}
    small: dict[int, Any] = {}
    for name, tensor in tensors.items():
        reader = tied.get(id(tensor))
        if id(tensor) in small or (name not in positions and reader is None):
            continue
        left = positions.get(name, {})
        new = cut_tensor(tensor.detach(), left)
        if reader is not None:
            for axis in reader.scaled:
                factors = axis.factors(values)
                if axis.dim in left:
                    factors = factors[left[axis.dim].to(factors.device)]
                new = scale(new, factors, axis.dim)
        if isinstance(tensor, nn.Parameter):
            new = nn.Parameter(new, requires_grad=tensor.requires_grad)
        small[id(tensor)] = new
    for norm in norms_of(gated.model):
        _keep_norm_(small, tensors, positions, norm)
    return small


def _keep_norm_(
    small: dict[int, Any], tensors: dict[str, Tensor], positions: Positions, norm: Computed
) -> None:
    """Let the lengths of rows under weight norm follow what is cut or gated in the rows."""
    source, lengths = tensors[norm.source], tensors[norm.lengths]
    if id(source) not in small:
        return
    left = positions.get(norm.lengths, {})
    before = cut_tensor(norm_except(source.detach(), norm.dim), left)
    new = small.get(id(lengths), nn.Parameter(lengths.detach(), lengths.requires_grad))
    rows, new_lengths = with_lengths(small[id(source)].detach(), new.detach(), before, norm.dim)
    small[id(source)] = nn.Parameter(rows, source.requires_grad)
    small[id(lengths)] = nn.Parameter(new_lengths, lengths.requires_grad)
