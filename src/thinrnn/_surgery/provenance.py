"""How a small model was made: what saving it and loading it again needs."""

from dataclasses import dataclass

from torch import nn

from thinrnn.errors import PlanError
from thinrnn.plan import Plan


@dataclass(frozen=True)
class Record:
    """The plan of the large model and, per group, the neurons that are still there.

    `before` is the record of the large model, where that had itself been made by `compact`.
    """

    plan: Plan
    kept: dict[str, list[int]]
    inputs: str = "same"
    before: "Record | None" = None


def record_of(small: nn.Module) -> Record:
    """Return how a small model was made."""
    record = find_record(small)
    if record is None:
        raise PlanError(
            f"this {type(small).__name__} was not made by compact or load_, so there is no plan to "
            "save or read with it. Give the model that compact(model) returned."
        )
    return record


def find_record(model: nn.Module) -> Record | None:
    """Return how a model was made, or None if thinrnn did not make it."""
    record = model.__dict__.get("_thinrnn_record")
    return record if isinstance(record, Record) else None


def set_record_(small: nn.Module, record: Record) -> None:
    """Store how a small model was made."""
    small.__dict__["_thinrnn_record"] = record


def kept_inputs(small: nn.Module) -> dict[str, list[int]]:
    """Return which of the original input features a small model uses.

    Args:
        small: A model from `compact` or `load_`.

    Returns:
        A list of indices for each group of input features.

    Raises:
        PlanError: The model was not made by thinrnn.

    Example:
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> _ = thinrnn.attach_(model, thinrnn.find_groups(model, x))
        >>> thinrnn.gates(model)["input"].log_alpha = torch.tensor([9.0, -9.0, 9.0])
        >>> thinrnn.kept_inputs(thinrnn.compact(model, inputs="kept"))
        {'input': [0, 2]}
    """
    return _kept_inputs(record_of(small))


def _kept_inputs(record: Record) -> dict[str, list[int]]:
    earlier = {} if record.before is None else _kept_inputs(record.before)
    found = dict(earlier)
    for group in record.plan.groups:
        if group.is_input:
            kept = record.kept[group.name]
            original = earlier.get(group.name)
            found[group.name] = list(kept) if original is None else [original[i] for i in kept]
    return found
