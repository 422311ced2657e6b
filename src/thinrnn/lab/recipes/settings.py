"""Settings of a training: typed fields with limits and help, checked by pydantic.

class MySettings(TrainingSettings):
    depth: int = Field(10, ge=1, description="layers")

changed(MySettings(), ["lr=5", "depth=3"])
"""

import difflib
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Literal, Self, TypedDict, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import from_json

from thinrnn._files import read_bytes
from thinrnn._schema import MOST
from thinrnn.lab.recipes.schedule import lr_factor
from thinrnn.lab.run.errors import InputError

PhaseName = Literal["dense", "gated", "control"]
PHASES: tuple[PhaseName, ...] = ("dense", "gated", "control")


class Goal(TypedDict, total=False):
    """The size to end with."""

    params: float
    macs: float


class TrainingSettings(BaseModel):
    """What every recipe lets the user choose; a recipe adds its own fields and defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    # What may change when a run goes on: nothing that the data or the model's shape depends on.
    resumable: ClassVar[tuple[str, ...]] = (
        *("lr", "gate_lr", "weight_decay", "clip", "precision", "cuda_graphs", "tensorboard"),
        *("log_every", "checkpoint_seconds", "checkpoint_steps"),
    )
    usual_clip: ClassVar[float] = 1.0  # a limit to try where gradients had none
    paths: ClassVar[tuple[str, ...]] = ("start_from",)  # settings that are files or folders

    # Training, the same for dense, gated and control
    batch: int = Field(20, ge=1, description="sequences per training step")
    optimizer: str = Field("adam", description="optimizer of the weights")
    lr: float = Field(1e-3, gt=0, description="learning rate of the weights")
    gate_lr: float = Field(1e-2, gt=0, description="learning rate of the gates (Adam)")
    weight_decay: float = Field(0.0, ge=0, description="weight decay, never on the gates")
    clip: float = Field(0.0, ge=0, description="largest norm of the gradient; 0: no clipping")
    schedule: str = Field("constant", description="learning rate over time")
    warmup: int = Field(
        0, ge=0, description="steps over which the learning rate rises at the start"
    )

    # Pruning
    target_params: float | None = Field(
        None, gt=0, description="parameters to end with: a fraction up to 1, or a number"
    )
    score: Literal["gates", "random", "magnitude"] = Field(
        "gates", description="what ranks neurons under a target; the last two are controls"
    )
    target_time: float = Field(
        0.5, gt=0, le=1, description="part of the training after which the size is reached"
    )
    l0: float | dict[str, float] | None = Field(
        None,
        description="fixed penalty instead of a target: one weight, or one per parameter pattern",
    )
    lasso: float | None = Field(
        None, gt=0, description="weight of group lasso (ISS), a baseline without learned gates"
    )
    lasso_zero: float = Field(
        1e-4, ge=0, description="'lasso': smaller weights are set to 0 after each step"
    )
    lasso_zero_at_end: float = Field(
        0.0, ge=0, description="'lasso': smaller weights are set to 0 once, after the last step"
    )
    lasso_embedding: bool = Field(
        False, description="'lasso': also on an embedding that is a group by itself"
    )
    gate: Literal["hard-concrete", "arm"] = Field(
        "hard-concrete", description="how gates learn; arm: unbiased, two forward passes per step"
    )
    gate_placement: Literal["readers", "both"] = Field(
        "readers",
        description="what gates multiply: readers' columns; both: also rows, as in the paper",
    )
    gate_mean: float = Field(2.5, description="initial log_alpha of the gates")
    start_from: str = Field(
        "", description="folder of a dense model whose weights the gated model starts with"
    )
    shrink: bool = Field(True, description="remove closed neurons at the end of every epoch")

    # Run
    phases: tuple[PhaseName, ...] = Field(PHASES, description="what to train, in this order")
    seed: int = Field(0, ge=0, description="random seed")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where to train")
    precision: Literal["auto", "float32", "bf16"] = Field(
        "auto", description="arithmetic; auto: bf16 where the GPU has it"
    )
    cuda_graphs: bool = Field(True, description="run training steps as CUDA graphs, on a GPU")
    threads: int = Field(
        0, ge=0, le=65536, description="CPU threads for training; 0: torch's choice"
    )
    eval_batch: int = Field(10, ge=1, description="sequences per batch in the final evaluation")
    log_every: int = Field(50, ge=1, description="steps between two lines of metrics.jsonl")
    checkpoint_seconds: float = Field(
        60.0, ge=0, description="seconds between checkpoints inside an epoch"
    )
    checkpoint_steps: int = Field(
        0, ge=0, description="also a checkpoint every this many steps; 0: by time alone"
    )
    tensorboard: bool = Field(True, description="also write TensorBoard events, if installed")
    bench_batch: int = Field(10, ge=1, description="batch size when the models are timed")
    bench_steps: int = Field(30, ge=1, description="tokens per sequence when the models are timed")
    bench_threads: int = Field(
        1, ge=1, le=65536, description="CPU threads when the models are timed"
    )
    bench_seconds: float = Field(1.0, ge=0, description="how long each model is timed")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(self._one_line(error)) from None

    @field_validator("*", mode="before")
    @classmethod
    def _from_text(cls, value: Any, info: ValidationInfo) -> Any:
        """Read what `--set` gives: none, 1,2 and {"name": 1e-7}; true is not a number."""
        kind = cls.model_fields[info.field_name or ""].annotation
        kinds = get_args(kind) or (kind,)
        if isinstance(value, bool) and bool not in kinds:
            raise ValueError(f"{info.field_name} is {value}, but must not be true or false.")
        parts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(part, str) and "\0" in part for part in parts):
            raise ValueError(f"{info.field_name} has a zero byte, which no name or text may have.")
        if isinstance(value, str):
            value = value.strip()
            if NoneType in kinds and value.lower() in ("", "none"):
                return None
            if get_origin(kind) is tuple:
                return [part.strip() for part in value.split(",")] if value else []
            if value.startswith(("{", "[")):
                try:
                    return from_json(value)  # which limits how deep values may be nested
                except ValueError as error:
                    raise ValueError(f"{info.field_name} is not valid JSON: {error}.") from None
        elif get_origin(kind) is tuple and not isinstance(value, list | tuple):
            return [value]
        return value

    @field_validator("*")
    @classmethod
    def _can_be_counted(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse integers that neither torch nor a machine can count to."""
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, int) and part > MOST:
                raise ValueError(f"{info.field_name} is too large: {MOST} is the limit.")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if "gated" in self.phases:
            pressures = [bool(self.target), self.l0 is not None, self.lasso is not None]
            if sum(pressures) != 1:
                raise ValueError(
                    "give exactly one of target, l0 and lasso, as in --set target_params=none "
                    "--set l0=1e-7."
                )
        if self.score != "gates" and not self.target:
            raise ValueError(f"score={self.score} needs a target, as in --set target_params=0.25.")
        if self.lasso is not None and not self.shrink:
            raise ValueError("lasso removes neurons while training goes on: leave shrink=true.")
        if not self.phases or list(self.phases) != [p for p in PHASES if p in self.phases]:
            raise ValueError(f"phases must be some of {', '.join(PHASES)}, in this order.")
        return self

    @property
    def target(self) -> Goal:
        """The size to end with, as `thinrnn.Target` takes it; empty where there is none."""
        return {} if self.target_params is None else {"params": self.target_params}

    @property
    def starts_from(self) -> str:
        """Folder of the model whose weights the gated one starts with, `dense`, or nothing."""
        return self.start_from

    @property
    def steps_gates_like_weights(self) -> bool:
        """Whether gates have the rule, the rate, the averages and the clipping of the weights."""
        return False

    @property
    def remedies(self) -> list[str]:
        """What to set in a new run where the model does not learn."""
        return [f"lr={self.lr / 2:g}"]

    @property
    def average_decay(self) -> float | None:
        """Decay of the moving average of the weights, None where no such average is kept."""
        return None

    def lr_at(self, *, step: int, steps: int, epoch: int) -> float:
        """Return the learning rate of the weights in a step."""
        return self.lr * lr_factor(
            self.schedule, step=step, steps=steps, epoch=epoch, warmup=self.warmup
        )

    def averages_from_now(self, epoch: int, earlier: list[float], current: float) -> bool:
        """Whether to average the weights from this epoch on, by the validations so far."""
        return False

    def stops_after(self, bad_epochs: int) -> bool:
        """Whether to stop after this many epochs without a better one."""
        return False

    def with_full_paths(self) -> Self:
        """Return settings with full paths, so that a run can be resumed from anywhere."""
        values = {name: getattr(self, name) for name in self.paths}
        return self.replaced(**{name: full_path(value) for name, value in values.items()})

    def replaced(self, **values: Any) -> Self:
        """Return the settings with other values, checked again; what is open stays open."""
        return type(self)(**{**{name: getattr(self, name) for name in self.given}, **values})

    @property
    def given(self) -> set[str]:
        """The settings that have been given a value; the others have their defaults."""
        return self.model_fields_set

    def is_to_be_chosen(self, name: str) -> bool:
        """Return whether the tool chooses a setting, by the data, when a run begins."""
        return False

    def leaves_open(self, name: str) -> bool:
        """Return whether nobody has given a setting a value."""
        return name not in self.given

    @classmethod
    def _one_line(cls, error: ValidationError) -> str:
        """Say which setting is wrong, what it is and what was expected."""
        first = error.errors()[0]
        if first["type"] == "value_error":
            return str(first["ctx"]["error"])
        name, value = str(first["loc"][0]), first["input"]
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(name, cls.model_fields, n=1)
            hint = f"did you mean '{near[0]}'?" if near else "'thinrnn list --settings' shows all."
            return f"there is no setting '{name}': {hint}"
        expected = first["msg"].partition(", unable")[0].removeprefix("Input should ")
        return f"{name} is {value!r}, but must {expected}."


S = TypeVar("S", bound=TrainingSettings)
NO_PATHS = ("", "dense", "teacher", "pydoc")  # names with a meaning of their own


def full_path(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Return a path, or several, from the root of the file system."""
    if isinstance(value, tuple):
        return tuple(path if path in NO_PATHS else os.path.realpath(path) for path in value)
    return value if value in NO_PATHS else os.path.realpath(value)


def changed(settings: S, assignments: Iterable[str]) -> S:
    """Return the settings with `key=value` texts applied, each checked against its type."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"'{assignment}' is not key=value: write --set {assignment}=VALUE.")
        values[key.strip()] = text
    return settings.replaced(**values)


def from_toml(settings: S, path: str | Path) -> S:
    """Return the settings with the values of a TOML file applied."""
    data = read_bytes(Path(path), InputError)
    try:
        values = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # ValueError is that of tomllib and of decode too
        raise InputError(f"{path} is not valid TOML: {error}.") from None
    return settings.replaced(**values)


def described(settings: TrainingSettings) -> list[tuple[str, str, str]]:
    """Return name, value and help of every field, the recipe's own first."""
    fields = type(settings).model_fields.items()
    own_first = sorted(fields, key=lambda field: field[0] in TrainingSettings.model_fields)
    return [(name, _shown_of(settings, name), field.description or "") for name, field in own_first]


def as_json(settings: TrainingSettings) -> dict[str, Any]:
    """Return the settings as JSON values; `replaced` and the class itself read them back."""
    return settings.model_dump(mode="json")


def _shown_of(settings: TrainingSettings, name: str) -> str:
    return "(chosen)" if settings.is_to_be_chosen(name) else _shown(getattr(settings, name))


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
