"""What a small model remembers of its making: enough to save it and to load it again."""

from dataclasses import dataclass

from torch import nn

from thinrnn.errors import PlanError
from thinrnn.plan import Plan


@dataclass(frozen=True)
class Record:
    """The plan of the large model and, per group, the neurons that are still there."""

    plan: Plan
    kept: dict[str, list[int]]
    inputs: str = "same"


def record_of(small: nn.Module) -> Record:
    """Return how a small model was made."""
    record = small.__dict__.get("_thinrnn_record")
    if not isinstance(record, Record):
        raise PlanError("this model was not made by compact or load_, so thinrnn knows no plan of it.")
    return record


def set_record_(small: nn.Module, record: Record) -> None:
    """Write down how a small model was made."""
    small.__dict__["_thinrnn_record"] = record


def kept_inputs(small: nn.Module) -> dict[str, list[int]]:
    """Return, per group of input features, which of the original ones the small model uses."""
    record = record_of(small)
    return {g.name: list(record.kept[g.name]) for g in record.plan.groups if g.is_input}
