"""Everything that can be chosen for a language model, in one place."""

import math
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from thinrnn.lab.recipes.schedule import has_stalled, lr_factor
from thinrnn.lab.recipes.settings import Goal, TrainingSettings

Size = Annotated[int, Field(ge=1)]
Probability = Annotated[float, Field(ge=0, le=0.95)]


class LanguageModelSettings(TrainingSettings):
    """The settings of a language-model run; presets are functions that return one of these."""

    resumable: ClassVar[tuple[str, ...]] = (*TrainingSettings.resumable, "lr_decay", "patience")
    usual_clip: ClassVar[float] = 0.25
    choosable: ClassVar[tuple[str, ...]] = (  # from the text and the time, by `choose.py`
        *("level", "punctuation", "min_count", "bptt", "batch", "hidden", "embedding", "tied"),
        *("epochs", "lr", "lr_width", "warmup", "gate_lr", "dropout", "init_bias", "init_range"),
    )
    paths: ClassVar[tuple[str, ...]] = ("train", "valid", "test", "start_from", "teacher")

    minutes: float | None = Field(
        None,
        gt=0,
        description="time for the whole run; settings that are left open are then chosen from "
        "the text, the device and its measured speed; none: they have their defaults",
    )

    # Text
    train: str = Field(
        "", description="training text: a UTF-8 file, or 'pydoc' for the one in Python itself"
    )
    valid: str = Field(
        "", description="validation text; without one, parts of the training text are held out"
    )
    test: str = Field("", description="test text; optional")
    level: Literal["word", "char"] = Field("word", description="what a token is")
    lower: bool = Field(False, description="turn the text into lower case")
    punctuation: bool = Field(False, description="split words from the punctuation around them")
    max_vocabulary: int = Field(
        0, ge=0, description="keep this many of the most frequent tokens; 0: all"
    )
    min_count: int = Field(1, ge=1, description="rarer tokens become <unk>")

    # Model
    cell: Literal["lstm", "gru", "rnn", "rhn"] = Field("lstm", description="recurrent layer")
    depth: int = Field(10, ge=1, description="'rhn': small steps in each time step")
    embedding: int = Field(400, ge=1, description="size of the embedding")
    hidden: tuple[Size, ...] = Field((400, 400), description="hidden neurons of each layer")
    tied: bool = Field(False, description="the output layer uses the embedding's weights")
    rare: int = Field(
        0, ge=0, description="number of rare words with shorter vectors of their own; 0: none"
    )
    rare_size: int = Field(64, ge=1, description="size of these vectors")
    dropout: Probability = Field(
        0.5, description="after the embedding, between layers, before the output"
    )
    input_dropout: Probability | None = Field(
        None, description="after the embedding; none: like dropout"
    )
    layer_dropout: Probability | None = Field(
        None, description="between layers; none: like dropout"
    )
    word_dropout: Probability = Field(0.0, description="of whole words of the embedding")
    weight_dropout: Probability = Field(
        0.0, description="of single weights in the recurrent matrices"
    )
    recurrent_dropout: Probability = Field(
        0.0, description="'rhn': of the state, one mask per sequence for all steps"
    )
    locked: bool = Field(False, description="one dropout mask for all steps of a window")
    small_dropout: Probability | None = Field(
        None,
        description="dropout of the small model and its control; other dropouts change in "
        "proportion, and all move there while gates close; none: like dropout",
    )
    init_range: Annotated[float, Field(gt=0)] | Literal["width"] | None = Field(
        0.1,
        description="embedding and output start uniform in +- this; width: with a variance of "
        "1 / sqrt(width), the output of a plain RNN with 1 / width; none: torch's default",
    )
    init_bias: Literal["zero", "frequency"] = Field(
        "zero",
        description="output biases at the start; frequency: the logarithms of the tokens' "
        "frequencies, so that a model starts as the unigram model",
    )
    rnn_init: float | None = Field(
        None,
        gt=0,
        description="recurrent layers start uniform in +- this, biases at 0; none: torch's default",
    )

    # Training
    epochs: int = Field(
        20, ge=1, description="passes over the training text, or as much text from the teacher"
    )
    batch: int = Field(20, ge=1, description="streams of text side by side")
    bptt: int = Field(35, ge=1, description="tokens per training step and stream")
    optimizer: Literal["sgd", "nt-asgd", "adam"] = Field(
        "adam", description="optimizer of the weights"
    )
    lr: float = Field(2e-3, gt=0, description="learning rate of the weights")
    gate_optimizer: Literal["adam", "weights"] = Field(
        "adam", description="optimizer of the gates; weights: that of the weights, with its lr"
    )
    gate_lr: float = Field(2e-2, gt=0, description="learning rate of the gates (Adam)")
    lr_width: int = Field(
        0,
        ge=0,
        description="width that lr is for: a narrower control has lr * sqrt(lr_width / its width); "
        "0: the same lr at any width",
    )
    clip: float = Field(0.25, ge=0, description="largest norm of the gradient; 0: no clipping")
    schedule: Literal["constant", "decay", "cosine"] = Field(
        "cosine", description="learning rate over time"
    )
    lr_decay: float = Field(0.25, gt=0, le=1, description="'decay': factor of each cut")
    decay_from: int = Field(1, ge=0, description="'decay': first epoch (from 0) with a lower rate")
    decay_every: int = Field(1, ge=1, description="'decay': epochs between two cuts")
    nonmonotone: int = Field(
        5, ge=1, description="'nt-asgd': start averaging after this many epochs without progress"
    )
    average_from: int | None = Field(
        None, ge=0, description="'nt-asgd': start averaging at this epoch at the latest"
    )
    distill: float = Field(
        0.0, ge=0, le=1, description="share of the loss that a teacher gives (gated and control)"
    )
    teacher: tuple[str, ...] = Field(
        (),
        description="folder of the teacher, or of several to average; dense (the default): the "
        "model of this run",
    )
    written: int = Field(
        0,
        ge=0,
        description="number of texts, each as long as the training text, that the teacher writes "
        "as extra training data (gated and control)",
    )
    patience: int = Field(
        0, ge=0, description="stop after this many epochs without a better one; 0: never"
    )

    # Pruning
    target_params: float | None = Field(
        0.25, gt=0, description="parameters to end with: a fraction up to 1, or a number"
    )
    target_macs: float | None = Field(
        None, gt=0, description="mult-adds per token to end with, the same way; or both"
    )
    start_from: str = Field(
        "",
        description="folder of a dense model whose weights the gated model starts with; dense: "
        "that of this run; teacher: the first teacher",
    )

    # Run
    valid_batch: int = Field(
        0,
        ge=0,
        description="streams in validation after each epoch; more are faster; 0: like eval_batch",
    )

    @model_validator(mode="after")
    def _is_a_language_model(self) -> Self:
        if not self.hidden:
            raise ValueError("hidden is empty: give one size per layer, as in hidden=200,200.")
        is_shaped = self.minutes is None or {"hidden", "embedding"} <= self.given
        if self.tied and is_shaped and self.hidden[-1] != self.embedding:
            raise ValueError(
                f"tied=true needs the last layer as wide as the embedding, but they are "
                f"{self.hidden[-1]} and {self.embedding}: change hidden or embedding."
            )
        if self.rare and not self.tied:
            raise ValueError("rare words need a tied model: set tied=true, or leave rare at 0.")
        if self.recurrent_dropout and self.cell != "rhn":
            raise ValueError(f"recurrent_dropout is for cell=rhn, not {self.cell}: leave it at 0.")
        if self.weight_dropout and self.cell == "rhn":
            raise ValueError("weight_dropout is not for cell=rhn: use recurrent_dropout.")
        if self.small_dropout and not self.dropout:
            raise ValueError("small_dropout is a fraction of dropout: set both.")
        if "" in self.teacher:
            raise ValueError("teacher has a comma with no folder beside it: leave it out.")
        if self.teacher and not self.distill and self.start_from != "teacher":
            raise ValueError("teacher needs a share of the loss, as in --set distill=0.5.")
        if self.distill and "dense" in self.teachers and "dense" not in self.phases:
            raise ValueError("distill needs a teacher: add dense to phases, or set teacher=FOLDER.")
        if self.written and not self.distill:
            raise ValueError("written needs a teacher: set distill above 0, as in distill=0.5.")
        if self.starts_from == "dense" and "dense" not in self.phases:
            raise ValueError(f"start_from={self.start_from} needs dense: add it to phases.")
        return self

    def is_to_be_chosen(self, name: str) -> bool:
        return self.minutes is not None and name in self.choosable and self.leaves_open(name)

    def at_width(self, width: int) -> Self:
        """Return settings with the learning rate for another width."""
        lr = self.lr * math.sqrt(self.lr_width / width)
        return self.replaced(lr=lr, lr_width=width)

    @property
    def target(self) -> Goal:
        goal: Goal = {}
        if self.target_params is not None:
            goal["params"] = self.target_params
        if self.target_macs is not None:
            goal["macs"] = self.target_macs
        return goal

    @property
    def steps_gates_like_weights(self) -> bool:
        return self.gate_optimizer == "weights"

    @property
    def teachers(self) -> tuple[str, ...]:
        """Folders of the models to learn from; dense: the one of this run."""
        return self.teacher or ("dense",)

    @property
    def starts_from(self) -> str:
        return self.teachers[0] if self.start_from == "teacher" else self.start_from

    def lr_at(self, *, step: int, steps: int, epoch: int) -> float:
        return self.lr * lr_factor(
            self.schedule,
            step=step,
            steps=steps,
            epoch=epoch,
            warmup=self.warmup,
            decay=self.lr_decay,
            decay_from=self.decay_from,
            decay_every=self.decay_every,
        )

    def averages_from_now(self, epoch: int, earlier: list[float], current: float) -> bool:
        if self.optimizer != "nt-asgd":
            return False
        is_late = self.average_from is not None and epoch + 1 >= self.average_from
        return is_late or has_stalled(earlier, current, self.nonmonotone)

    def stops_after(self, bad_epochs: int) -> bool:
        return bool(self.patience) and bad_epochs >= self.patience

    def passes(self, phase: str) -> int:
        """How often a phase reads its training data, so that each phase takes as long."""
        texts = 1 if phase == "dense" else 1 + self.written
        return max(1, round(self.epochs / texts))
