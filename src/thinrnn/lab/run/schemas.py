"""What the files of a run folder must hold; a field that is not named here may hold anything."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from thinrnn._schema import MOST, Count, Schema

LARGEST = 10**7  # rows or columns of a weight matrix
Wide = Annotated[int, Field(ge=0, le=2**53)]  # what JSON can count exactly
Counts = dict[str, Count]
Figure = Annotated[float, Field(allow_inf_nan=True)] | None  # a training may diverge


class Open(BaseModel):
    """A table with further fields, such as those of another version."""

    model_config = ConfigDict(strict=True, extra="allow")

    def table(self) -> dict[str, Any]:
        """Return what the file holds."""
        return self.model_dump(exclude_unset=True)


class AnyFields(Open):
    """Any JSON object."""


class Made(Open):
    """recipe.json of a model, as far as every recipe has it."""

    recipe: str


class DataFacts(Open):
    """What config.json keeps of the data."""

    sha256: str | None = None


class Environment(Open):
    """Where a run was begun."""

    threads: Annotated[int, Field(ge=1, le=65536)] | None = None


class Config(Open):
    """config.json."""

    recipe: str
    settings: dict[str, JsonValue]
    format: int | None = None
    thinrnn: str | None = None
    preset: str | None = None
    seed: Wide | None = None
    command: str | None = None
    metrics: dict[str, Literal["lower", "higher"]] | None = None
    text: DataFacts | None = None
    environment: Environment | None = None


class SummaryFile(Open):
    """dense.json, small.json and control.json."""

    __pydantic_extra__: dict[str, float | int | str | bool | None]

    neurons: Counts = {}  # pydantic copies it
    weights: Wide | None = None
    params: Wide | None = None
    macs: Wide | None = None
    bytes: Wide | None = None
    valid_perplexity: Figure = None
    test_perplexity: Figure = None
    em: Figure = None
    f1: Figure = None
    milliseconds: Figure = None
    onnx_milliseconds: Figure = None
    seconds: Figure = None
    difference: Figure = None
    onnx_difference: Figure = None


class Event(Open):
    """A line of metrics.jsonl."""

    event: str | None = None
    phase: str | None = None
    step: Wide | None = None
    epoch: Annotated[float, Field(ge=0, le=MOST)] | None = None
    kept: Counts | None = None
    sizes: Counts | None = None
    values: dict[str, list[float]] | None = None


class PatternMatrix(Schema):
    """One weight matrix in pattern.json: its size, and the rows and columns that are left."""

    name: str
    rows: Annotated[int, Field(ge=1, le=LARGEST)]
    columns: Annotated[int, Field(ge=1, le=LARGEST)]
    kept_rows: list[Count] | None = None
    kept_columns: list[Count] | None = None


class Pattern(Schema):
    """pattern.json."""

    matrices: tuple[PatternMatrix, ...] = ()


class Part(Schema):
    """Size and checksum of one file of a checkpoint."""

    bytes: Wide
    sha256: str


class Manifest(Schema):
    """manifest.json of a checkpoint."""

    tensors: Part = Field(alias="tensors.safetensors")
    state: Part = Field(alias="state.json")

    def parts(self) -> Mapping[str, Part]:
        return {"tensors.safetensors": self.tensors, "state.json": self.state}
