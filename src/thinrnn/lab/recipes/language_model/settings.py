"""Everything that can be chosen for a language model, in one place."""

from collections.abc import Mapping
from dataclasses import dataclass

from thinrnn.lab.recipes.settings import check_limits, setting
from thinrnn.lab.run.errors import InputError

PHASES = ("dense", "gated", "control")


@dataclass(frozen=True)
class Settings:
    """The settings of a language-model run; presets are functions that return one of these."""

    # Text
    train: str = setting("", "training text: a UTF-8 file, or 'pydoc' for the one in Python itself")
    valid: str = setting("", "validation text")
    test: str = setting("", "test text; may be left out")
    level: str = setting("word", "what a token is", choices=("word", "char"))
    lower: bool = setting(False, "turn the text into lower case")
    punctuation: bool = setting(False, "split words from the punctuation around them")
    max_vocabulary: int = setting(0, "keep so many of the most frequent tokens; 0: all", least=0)
    min_count: int = setting(1, "rarer tokens become <unk>", least=1)

    # Model
    cell: str = setting("lstm", "recurrent layer", choices=("lstm", "gru", "rnn", "rhn"))
    depth: int = setting(10, "'rhn': small steps in each time step", least=1)
    embedding: int = setting(400, "size of the embedding", least=1)
    hidden: tuple[int, ...] = setting((400, 400), "hidden neurons of each layer", least=1)
    tied: bool = setting(False, "the output layer uses the embedding's weights")
    rare: int = setting(
        0, "so many of the rarest words have vectors of a size of their own; 0: none", least=0
    )
    rare_size: int = setting(64, "that size", least=1)
    dropout: float = setting(
        0.5, "after embedding, between layers, before output", least=0, most=0.95
    )
    input_dropout: float | None = setting(
        None, "after the embedding; none: like dropout", least=0, most=0.95
    )
    layer_dropout: float | None = setting(
        None, "between layers; none: like dropout", least=0, most=0.95
    )
    word_dropout: float = setting(0.0, "of whole words of the embedding", least=0, most=0.95)
    weight_dropout: float = setting(0.0, "of entries of the recurrent matrices", least=0, most=0.95)
    recurrent_dropout: float = setting(
        0.0, "'rhn': of the state, one mask per sequence for all steps", least=0, most=0.95
    )
    locked: bool = setting(False, "one dropout mask for all steps of a window")
    small_dropout: float | None = setting(
        None,
        "dropout of the small model and its control, the others in proportion; gates close from "
        "dropout to this one; none: like the dense one",
        least=0,
        most=0.95,
    )
    init_range: float | None = setting(
        0.1, "embedding and output start uniform in +- this; none: torch's default", above=0
    )
    rnn_init: float | None = setting(
        None,
        "recurrent layers start uniform in +- this, biases at 0; none: torch's default",
        above=0,
    )

    # Training, the same for dense, gated and control
    epochs: int = setting(
        20, "passes over the training text, or as much of what the teacher wrote", least=1
    )
    batch: int = setting(20, "streams of text side by side", least=1)
    bptt: int = setting(35, "tokens per training step and stream", least=1)
    optimizer: str = setting("adam", "rule for the weights", choices=("sgd", "nt-asgd", "adam"))
    lr: float = setting(2e-3, "learning rate of the weights", above=0)
    gate_lr: float = setting(2e-2, "learning rate of the gates (Adam)", above=0)
    weight_decay: float = setting(0.0, "decay of the weights, never of the gates", least=0)
    clip: float = setting(0.25, "largest norm of the gradient; 0: no clipping", least=0)
    schedule: str = setting(
        "cosine", "learning rate over time", choices=("constant", "decay", "cosine", "plateau")
    )
    warmup: int = setting(0, "steps over which the learning rate rises at the start", least=0)
    lr_decay: float = setting(0.25, "factor of 'decay' and 'plateau'", above=0, most=1)
    decay_from: int = setting(1, "'decay': first epoch (from 0) with a lower rate", least=0)
    decay_every: int = setting(1, "'decay': epochs between two cuts", least=1)
    nonmonotone: int = setting(5, "'nt-asgd': averaging starts after so many bad epochs", least=1)
    average_from: int | None = setting(
        None, "'nt-asgd': average from this epoch at the latest", least=0
    )
    distill: float = setting(
        0.0, "part of the loss that a trained model gives (gated and control)", least=0, most=1
    )
    teacher: tuple[str, ...] = setting(
        (),
        "folder of that model, or of several, which speak together; dense: the one of this run, as "
        "if left out",
    )
    written: int = setting(
        0,
        "texts as long as the training text that the teacher writes, to learn from besides it "
        "(gated and control)",
        least=0,
    )
    patience: int = setting(0, "stop after so many epochs without a better one; 0: never", least=0)

    # Pruning
    target_params: float | None = setting(
        0.25, "parameters to end with: a fraction up to 1, or a number", above=0
    )
    target_macs: float | None = setting(
        None, "mult-adds per token to end with, the same way; both may be given", above=0
    )
    target_time: float = setting(
        0.5, "part of the training after which the size is reached", above=0, most=1
    )
    l0: float | Mapping[str, float] | None = setting(
        None, "fixed penalty instead of a target: one weight, or one per parameter-name pattern"
    )
    lasso: float | None = setting(
        None, "group lasso (ISS) instead of gates, for comparison: its weight", above=0
    )
    gate_mean: float = setting(2.5, "where the gates start (log_alpha)")
    start_from: str = setting(
        "",
        "folder of a dense model whose weights the gated one starts with; dense: of this run; "
        "teacher: that one, or the first",
    )
    shrink: bool = setting(True, "remove closed neurons at every epoch end, while training goes on")

    # Run
    phases: tuple[str, ...] = setting(
        PHASES,
        "what to train, in this order; control alone: of the sizes that are set",
        choices=PHASES,
    )
    seed: int = setting(0, "random seed", least=0)
    device: str = setting("auto", "where to train", choices=("auto", "cpu", "cuda"))
    precision: str = setting(
        "auto", "arithmetic; auto: bf16 where the GPU has it", choices=("auto", "float32", "bf16")
    )
    cuda_graphs: bool = setting(True, "replay whole training steps as CUDA graphs, on a GPU")
    threads: int = setting(0, "CPU threads for training; 0: torch's choice", least=0)
    eval_batch: int = setting(10, "streams in validation and test", least=1)
    valid_batch: int = setting(
        0, "streams in validation after each epoch; more are quicker; 0: like eval_batch", least=0
    )
    log_every: int = setting(50, "steps between two lines of metrics.jsonl", least=1)
    checkpoint_seconds: float = setting(60.0, "time between checkpoints inside an epoch", least=0)
    checkpoint_steps: int = setting(0, "also one every so many steps; 0: by time alone", least=0)
    tensorboard: bool = setting(True, "also write TensorBoard events, where it is installed")
    bench_batch: int = setting(10, "streams when the models are timed", least=1)
    bench_steps: int = setting(30, "tokens per stream when the models are timed", least=1)
    bench_threads: int = setting(1, "CPU threads when the models are timed", least=1)
    bench_seconds: float = setting(
        1.0, "how long each model is timed; 0: a few calls, and not in ONNX Runtime", least=0
    )

    def __post_init__(self) -> None:
        check_limits(self)
        if not self.hidden:
            raise InputError(
                "hidden is empty: give one size per layer, as in --set hidden=200,200."
            )
        if self.tied and self.hidden[-1] != self.embedding:
            raise InputError(
                f"tied=true needs the last layer as wide as the embedding, but they are "
                f"{self.hidden[-1]} and {self.embedding}: change hidden or embedding."
            )
        if self.rare and not self.tied:
            raise InputError(
                "rare words have vectors of their own size in a tied model alone: set tied=true, "
                "or leave rare at 0."
            )
        has_target = self.target_params is not None or self.target_macs is not None
        pressures = [has_target, self.l0 is not None, self.lasso is not None]
        if "gated" in self.phases and sum(pressures) != 1:
            raise InputError(
                "give a target (target_params, target_macs or both), l0 or lasso, and not two of "
                "these (--set target_params=none --set l0=1e-7, say)."
            )
        if self.lasso is not None and not self.shrink:
            raise InputError("lasso removes neurons while training goes on: leave shrink=true.")
        if self.recurrent_dropout and self.cell != "rhn":
            raise InputError(f"recurrent_dropout is for cell=rhn, not {self.cell}: leave it at 0.")
        if self.weight_dropout and self.cell == "rhn":
            raise InputError("weight_dropout is not for cell=rhn: use recurrent_dropout.")
        if not self.phases or list(self.phases) != [p for p in PHASES if p in self.phases]:
            raise InputError(f"phases must be some of {', '.join(PHASES)}, in this order.")
        if self.small_dropout and not self.dropout:
            raise InputError("small_dropout needs a dropout that it is a part of: set both.")
        if "" in self.teacher:
            raise InputError("teacher has a comma with no folder beside it: leave it out.")
        if self.teacher and not self.distill and self.start_from != "teacher":
            raise InputError(
                "teacher has no part in the loss: set distill above 0, as in --set distill=0.5."
            )
        if self.distill and "dense" in self.teachers and "dense" not in self.phases:
            raise InputError("distill needs a teacher: add dense to phases, or set teacher=FOLDER.")
        if self.written and not self.distill:
            raise InputError(
                "written needs the teacher that writes: set distill above 0, as in "
                "--set distill=0.5."
            )
        if self.starts_from == "dense" and "dense" not in self.phases:
            raise InputError(f"start_from={self.start_from} needs dense: add it to phases.")

    @property
    def teachers(self) -> tuple[str, ...]:
        """Folders of the models to learn from; dense: the one of this run."""
        return self.teacher or ("dense",)

    @property
    def starts_from(self) -> str:
        """Folder of the model whose weights the gated one starts with, `dense`, or nothing."""
        return self.teachers[0] if self.start_from == "teacher" else self.start_from

    def passes(self, phase: str) -> int:
        """How often a phase reads all that it learns from, so that each phase takes as long."""
        texts = 1 if phase == "dense" else 1 + self.written
        return max(1, round(self.epochs / texts))
