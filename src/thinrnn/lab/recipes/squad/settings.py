"""Everything that can be chosen for a BiDAF on SQuAD, in one place."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from thinrnn.lab.recipes.settings import TrainingSettings

Size = Annotated[int, Field(ge=1)]
Probability = Annotated[float, Field(ge=0, le=0.95)]


class SquadSettings(TrainingSettings):
    """The settings of a BiDAF run; presets are functions that return one of these."""

    resumable: ClassVar[tuple[str, ...]] = (*TrainingSettings.resumable, "data", "cache")
    usual_clip: ClassVar[float] = 5.0
    paths: ClassVar[tuple[str, ...]] = ("data", "start_from")

    # Data
    data: str = Field("", description="folder with squad/ and glove/")
    more_than: int = Field(
        10, ge=0, description="train vectors for words outside GloVe that occur more often"
    )
    characters_more_than: int = Field(50, ge=0, description="rarer characters are unknown")
    held_out: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="part of the training paragraphs that stands in for dev, to choose settings",
    )
    most_context: int = Field(400, ge=1, description="tokens of the longest context in training")
    most_question: int = Field(30, ge=1, description="tokens of the longest question in training")
    cache: str = Field("", description="folder for prepared data; default: the user's cache")

    # Model
    character: int = Field(8, ge=1, description="size of a character's embedding")
    filters: int = Field(100, ge=1, description="filters of the character CNN")
    width: int = Field(5, ge=1, le=16, description="characters that a filter sees")
    hidden: tuple[Size, ...] = Field(
        (100, 100), description="neurons of the encoder, forward and backward; one number: both"
    )
    six: tuple[Size, ...] = Field(
        (100,) * 6, description="neurons of modelling 1 and 2 and output, forward and backward"
    )
    dropout: Probability = Field(0.2, description="on the inputs of LSTMs and output layers")
    small_dropout: Probability | None = Field(
        None, description="the same for gated model and control; none: like dropout"
    )
    character_dropout: Probability = Field(0.2, description="on the characters' embeddings")

    # Training
    steps: int = Field(10_000, ge=1, description="training steps")
    eval_every: int = Field(1000, ge=1, description="steps of an epoch, which ends with dev")
    batch: int = Field(60, ge=1, description="questions per step")
    optimizer: Literal["adam", "adadelta"] = Field("adam", description="optimizer of the weights")
    schedule: Literal["constant", "cosine"] = Field(
        "constant", description="learning rate over time"
    )
    ema: float = Field(
        0.999, ge=0, le=1, description="decay of the averaged weights, which are the ones used"
    )

    # Pruning
    select: Literal["six", "recurrent", "all"] = Field(
        "six", description="neurons to prune: of six LSTMs, of all recurrent layers, or all"
    )
    target_params: float | None = Field(
        0.4, gt=0, description="parameters to end with: a fraction up to 1, or a number"
    )

    # Run
    context_step: int = Field(32, ge=1, description="pad contexts to a multiple of this")
    question_step: int = Field(30, ge=1, description="pad questions to a multiple of this")
    eval_batch: int = Field(60, ge=1, description="questions per batch when dev is read")
    bench_batch: int = Field(1, ge=1, description="questions per batch when the models are timed")
    bench_steps: int = Field(140, ge=1, description="tokens of the context when they are timed")

    @field_validator("hidden")
    @classmethod
    def _two(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        sizes = sizes * 2 if len(sizes) == 1 else sizes
        if len(sizes) != 2:
            raise ValueError(f"hidden has {len(sizes)} sizes: give two, as in hidden=60,55.")
        return sizes

    @field_validator("six")
    @classmethod
    def _six(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if len(sizes) != 6:
            raise ValueError(f"six has {len(sizes)} sizes: give six, as in 26,33,36,36,33,15.")
        return sizes

    @model_validator(mode="after")
    def _has_a_control_of_known_shape(self) -> Self:
        if "control" in self.phases and "gated" not in self.phases:
            raise ValueError("a control needs a gated run, whose shape it has: add that phase.")
        if "control" in self.phases and self.select == "all":
            raise ValueError(
                "a control has the shape of a gated run with select=six or recurrent, not all: "
                "leave the phase control out."
            )
        return self

    @property
    def average_decay(self) -> float:
        return self.ema
