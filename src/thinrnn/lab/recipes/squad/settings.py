"""Everything that can be chosen for a reading run, in one place."""

from collections.abc import Mapping
from dataclasses import dataclass

from thinrnn.lab.recipes.settings import check_limits, setting
from thinrnn.lab.run.errors import InputError

PHASES = ("dense", "gated", "control")


@dataclass(frozen=True)
class Settings:
    """The settings of a BiDAF run; presets are functions that return one of these."""

    # Data
    data: str = setting("", "folder with squad/ and glove/")
    more_than: int = setting(10, "words outside GloVe that occur more often are trained", least=0)
    characters_more_than: int = setting(50, "rarer characters are unknown", least=0)
    most_context: int = setting(400, "tokens of the longest context in training", least=1)
    most_question: int = setting(30, "tokens of the longest question in training", least=1)
    cache: str = setting("", "folder for prepared data; left out: the user's cache folder")

    # Model
    character: int = setting(8, "size of a character's embedding", least=1)
    filters: int = setting(100, "filters of the character CNN", least=1)
    width: int = setting(5, "characters that a filter sees", least=1, most=16)
    hidden: tuple[int, ...] = setting(
        (100, 100), "neurons of the encoder, forward and backward; one number: both", least=1
    )
    six: tuple[int, ...] = setting(
        (100,) * 6, "neurons of modelling 1 and 2 and output, forward and backward", least=1
    )
    dropout: float = setting(0.2, "on the inputs of LSTMs and output layers", least=0, most=0.95)
    small_dropout: float | None = setting(
        None, "the same for gated model and control; none: like dropout", least=0, most=0.95
    )
    character_dropout: float = setting(0.2, "on the characters' embeddings", least=0, most=0.95)

    # Training, the same for dense, gated and control
    steps: int = setting(10_000, "training steps", least=1)
    eval_every: int = setting(1000, "steps of a round, which ends with a look at dev", least=1)
    batch: int = setting(60, "questions per step", least=1)
    optimizer: str = setting("adam", "rule for the weights", choices=("adam", "adadelta"))
    lr: float = setting(1e-3, "learning rate of the weights", above=0)
    gate_lr: float = setting(1e-2, "learning rate of the gates (Adam)", above=0)
    weight_decay: float = setting(0.0, "decay of the weights, never of the gates", least=0)
    clip: float = setting(0.0, "largest norm of the gradient; 0: no clipping", least=0)
    schedule: str = setting("constant", "learning rate over time", choices=("constant", "cosine"))
    warmup: int = setting(0, "steps over which the learning rate rises at the start", least=0)
    ema: float = setting(0.999, "decay of the averaged weights that are used", least=0, most=1)

    # Pruning
    select: str = setting(
        "six",
        "neurons that may go: six LSTMs, recurrent layers, or all",
        choices=("six", "recurrent", "all"),
    )
    target_params: float | None = setting(
        0.4, "parameters to end with: a fraction up to 1, or a number", above=0
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
    lasso_zero: float = setting(
        0.01, "'lasso': smaller weights become 0; more than Adam moves one in a step", least=0
    )
    gate_mean: float = setting(2.5, "where the gates start (log_alpha)")
    shrink: bool = setting(True, "remove closed neurons at every round's end")
    start_from: str = setting("", "folder of a dense model whose weights the gated one starts with")

    # Run
    phases: tuple[str, ...] = setting(PHASES, "what to train, in this order", choices=PHASES)
    seed: int = setting(0, "random seed", least=0)
    device: str = setting("auto", "where to train", choices=("auto", "cpu", "cuda"))
    precision: str = setting(
        "auto", "arithmetic; auto: bf16 where the GPU has it", choices=("auto", "float32", "bf16")
    )
    cuda_graphs: bool = setting(True, "replay whole training steps as CUDA graphs, on a GPU")
    context_step: int = setting(32, "contexts are padded to a multiple of this", least=1)
    question_step: int = setting(30, "questions are padded to a multiple of this", least=1)
    threads: int = setting(0, "CPU threads for training; 0: torch's choice", least=0)
    eval_batch: int = setting(60, "questions side by side when dev is read", least=1)
    log_every: int = setting(50, "steps between two lines of metrics.jsonl", least=1)
    checkpoint_seconds: float = setting(60.0, "time between checkpoints inside a round", least=0)
    checkpoint_steps: int = setting(0, "also one every so many steps; 0: by time alone", least=0)
    tensorboard: bool = setting(True, "also write TensorBoard events, where it is installed")
    bench_batch: int = setting(1, "questions side by side when the models are timed", least=1)
    bench_steps: int = setting(140, "tokens of the context when the models are timed", least=1)
    bench_threads: int = setting(1, "CPU threads when the models are timed", least=1)
    bench_seconds: float = setting(1.0, "how long each model is timed", least=0)

    def __post_init__(self) -> None:
        check_limits(self)
        if len(self.hidden) == 1:
            object.__setattr__(self, "hidden", self.hidden * 2)
        if len(self.hidden) != 2:
            raise InputError(
                f"hidden has {len(self.hidden)} sizes: give two, as in --set hidden=60,55."
            )
        if len(self.six) != 6:
            raise InputError(
                f"six has {len(self.six)} sizes: give six, as in --set six=26,33,36,36,33,15."
            )
        pressures = [self.target_params, self.l0, self.lasso]
        if "gated" in self.phases and sum(p is not None for p in pressures) != 1:
            raise InputError("give exactly one of target_params, l0 and lasso.")
        if self.lasso is not None and not self.shrink:
            raise InputError("lasso removes neurons while training goes on: leave shrink=true.")
        if not self.phases or list(self.phases) != [p for p in PHASES if p in self.phases]:
            raise InputError(f"phases must be some of {', '.join(PHASES)}, in this order.")
        if "control" in self.phases and "gated" not in self.phases:
            raise InputError("a control needs a gated run, whose shape it has: add that phase.")
        if "control" in self.phases and self.select == "all":
            raise InputError(
                "a control has the shape of a gated run with select=six or recurrent, not all: "
                "leave the phase control out."
            )

    @property
    def rounds(self) -> int:
        """How often dev is looked at."""
        return -(-self.steps // self.eval_every)
