"""What the files of a saved model must hold, checked by pydantic before anything is built.

Imported where a file is read, because `import thinrnn` does without pydantic.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from thinrnn._schema import Count, Schema
from thinrnn.group import Group
from thinrnn.plan import FORMAT as PLAN_FORMAT
from thinrnn.plan import Plan, Refusal

Dtype = Literal[
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "complex64",
    "complex128",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
    "bool",
]


class PlanFile(Schema):
    """A plan, as `Plan.to_json` writes it."""

    thinrnn_plan: Literal[PLAN_FORMAT]  # type: ignore[valid-type]
    groups: tuple[Group, ...]
    refused: tuple[Refusal, ...] = ()
    outside: tuple[str, ...] = ()
    applied: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)

    def plan(self) -> Plan:
        return Plan(
            groups=self.groups, refused=self.refused, outside=self.outside, applied=self.applied
        )


class RecordFile(Schema):
    """How a small model was made."""

    kept: dict[str, list[Count]]
    inputs: Literal["same", "kept"]
    plan: PlanFile
    before: "RecordFile | None"

    @model_validator(mode="after")
    def _kept_fits_the_plan(self) -> Self:
        groups = {group.name for group in self.plan.groups}
        for name in groups.symmetric_difference(self.kept):
            here, there = ("plan", "kept") if name in groups else ("kept", "plan")
            raise ValueError(f"{here} has the group {name[:60]!a}, and {there} does not")
        return self


class TensorEntry(Schema):
    """How one tensor is stored: with its type, or as another name of an earlier one."""

    dtype: Dtype | None = None
    same_as: str | None = None

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.dtype is None) == (self.same_as is None):
            raise ValueError("either dtype or same_as is expected")
        return self


class SavedModel(RecordFile):
    """thinrnn.json, without its format, which is read first."""

    tensors: dict[str, TensorEntry]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class SavedFormat(Schema):
    """The one field that every version of thinrnn.json has."""

    format: int | None = None


class LatencyPoint(Schema):
    """The median time of a call at one size."""

    kept: dict[str, Count]
    milliseconds: Annotated[float, Field(gt=0)]


class LatencyFile(Schema):
    """The times of one model over its sizes, as `Latency` keeps them."""

    thinrnn_latency: Literal[1]
    about: dict[str, str | int]
    points: tuple[LatencyPoint, ...]
