"""The paper's language models on the Penn Treebank, and ours: settings by name.

Weights are counted as the paper counts them, without biases; a target counts all parameters, so
10,000 are added for the output layer's biases, and the layers' own come on top.
"""

import functools

from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.named_settings import Presets

TOKENS = 929_589  # of the training text; the paper's penalties are multiples of 0.08 / TOKENS
PAPER_BUDGET = 6_160_000 + 10_000
SHORT = 50  # epochs of the rows that are compared among themselves
# What the pruned runs ended with; the controls that are trained alone have these shapes.
PAPER_SHAPE = (218, (505, 196))
THIN_SHAPE = (277, (642, 277))
# Results of the ablations; all results are valid / test perplexity and weights, written here by
# hand from results/ptb/*.json, and a test compares the two.
ABLATIONS = {
    1: "89.03 / 86.42, 12.55M weights",
    2: "90.48 / 88.06, 9.92M weights",
    3: "92.53 / 89.53, 9.24M weights",
    4: "93.07 / 90.67, 8.74M weights",
    5: "93.89 / 91.46, 8.18M weights",
}

PRESETS = Presets("language_model", prefix="ptb-", corpus="ptb")


@PRESETS.add("dense-sgd", "the paper's dense LSTM, plain SGD", "81.92 / 78.53, 66.0M weights")
def dense_sgd() -> LanguageModelSettings:
    """Plain SGD as in the paper's own reference, on a token-mean loss."""
    return LanguageModelSettings(
        embedding=1500,
        hidden=(1500, 1500),
        dropout=0.65,
        init_range=0.04,
        rnn_init=0.04,
        optimizer="sgd",
        lr=35.0,
        clip=10 / 35,
        schedule="decay",
        lr_decay=1 / 1.15,
        decay_from=14,
        epochs=55,
        target_params=None,
        phases=("dense",),
    )


@PRESETS.add(
    "dense-ntasgd", "the same under the schedule of the pruned one", "77.44 / 75.36, 66.0M weights"
)
def dense_ntasgd() -> LanguageModelSettings:
    return paper().replaced(dropout=0.65, target_params=None, phases=("dense",), init_range=0.1)


@PRESETS.add("iss", "group lasso on the same model (ISS)", "81.07 / 77.23, 22.5M weights")
def iss() -> LanguageModelSettings:
    return dense_sgd().replaced(
        dropout=0.40,
        lr_decay=0.1,
        decay_from=18,
        decay_every=18,
        lasso=9.0e-5,
        phases=("gated",),
    )


@PRESETS.add(
    "paper",
    "neuron selection down to 6.16M weights, and its control",
    "79.89 / 76.64, 6.15M weights",
)
def paper() -> LanguageModelSettings:
    return LanguageModelSettings(
        embedding=1500,
        hidden=(1500, 1500),
        dropout=0.35,
        init_range=0.1,
        optimizer="nt-asgd",
        lr=20.0,
        clip=0.25,
        weight_decay=1.2e-6,
        schedule="constant",
        average_from=30,
        epochs=100,
        target_params=PAPER_BUDGET,
        target_time=0.15,
        gate_lr=0.005,
        gate_mean=2.5,
        phases=("gated", "control"),
    )


@PRESETS.add("paper-scratch", "the shape of ptb-paper from scratch", "82.06 / 78.90, 6.15M weights")
def paper_scratch() -> LanguageModelSettings:
    """Trained alone, under the schedule of `paper`."""
    return from_scratch(paper(), PAPER_SHAPE)


def ablation(multiple: int) -> LanguageModelSettings:
    """A row of the paper's second table: fixed penalties, the first input's a multiple."""
    unit = 0.08 / TOKENS
    return paper().replaced(
        epochs=SHORT,
        target_params=None,
        l0={
            "rnn.weight_ih_l0": multiple * unit,
            "rnn.weight_hh_l0": unit,
            "rnn.weight_ih_l1": unit,
            "rnn.weight_hh_l1": unit,
        },
        gate_mean=1.0,
        phases=("gated",),
    )


for k, reached in ABLATIONS.items():
    summary = f"fixed penalties, multiples {k},1,1,1 (the paper's table 2)"
    PRESETS.add(f"ablation-{k}", summary, reached)(functools.partial(ablation, k))


@PRESETS.add("gru", "a GRU down to 6.16M weights, and its control", "93.21 / 89.79, 6.15M weights")
def gru() -> LanguageModelSettings:
    """A GRU learns more slowly at the LSTM's rate."""
    return paper().replaced(cell="gru", lr=8.0, epochs=SHORT)


@PRESETS.add(
    "rnn", "a plain RNN down to 6.16M weights, and its control", "122.64 / 117.56, 6.16M weights"
)
def rnn() -> LanguageModelSettings:
    """A plain recurrent network diverges at the LSTM's rate."""
    return paper().replaced(cell="rnn", lr=2.0, epochs=SHORT)


@PRESETS.add(
    "teacher", "the dense model that thin and tiny learn from", "66.29 / 63.44, 28.4M weights"
)
def teacher() -> LanguageModelSettings:
    """Tied, by Adam, with dropout wherever it helps."""
    return LanguageModelSettings(
        embedding=900,
        hidden=(1300, 900),
        tied=True,
        locked=True,
        dropout=0.6,
        input_dropout=0.55,
        layer_dropout=0.4,
        word_dropout=0.12,
        weight_dropout=0.5,
        init_range=0.1,
        optimizer="adam",
        lr=3e-3,
        clip=1.0,
        weight_decay=1.2e-6,
        schedule="cosine",
        warmup=400,
        batch=64,
        epochs=125,
        target_params=None,
        phases=("dense",),
    )


@PRESETS.add(
    "thin",
    "our best recipe at 6.16M weights, and its control",
    "68.49 / 65.92, 6.15M weights, given a teacher",
)
def thin() -> LanguageModelSettings:
    """The teacher pruned, on text that it writes."""
    pruned = teacher().replaced(
        target_params=PAPER_BUDGET, target_time=0.25, gate_lr=0.01, gate_mean=2.5
    )
    return taught(pruned, small_dropout=0.03)


def taught(settings: LanguageModelSettings, *, small_dropout: float) -> LanguageModelSettings:
    """Return settings of a model that starts with its teacher's weights and reads what it writes.

    There is text enough for the small model to drop hardly anything.
    """
    return settings.replaced(
        small_dropout=small_dropout,
        epochs=160,
        distill=0.9,
        written=19,
        start_from="teacher",
        phases=("dense", "gated", "control"),
    )


@PRESETS.add("thin-scratch", "the shape of ptb-thin from scratch", "70.43 / 67.45, 6.15M weights")
def thin_scratch() -> LanguageModelSettings:
    """With the dropout that it needs by itself."""
    return from_scratch(thin(), THIN_SHAPE).replaced(small_dropout=0.4)


@PRESETS.add(
    "tiny",
    "our best recipe at 1.25M weights, and its control",
    "77.60 / 75.11, 1.25M weights, given a teacher",
)
def tiny() -> LanguageModelSettings:
    """The smallest model of the paper's quality; vectors of rare words are short."""
    return thin().replaced(
        embedding=400,
        hidden=(600, 400),
        rare=8000,
        rare_size=100,
        dropout=0.65,
        input_dropout=0.65,
        layer_dropout=0.5,
        word_dropout=0.15,
        weight_dropout=0.6,
        start_from="",
        target_params=1_250_000 + 10_000,
    )


def from_scratch(
    settings: LanguageModelSettings, shape: tuple[int, tuple[int, ...]]
) -> LanguageModelSettings:
    """Return the control of a pruned run, of a shape that is known, without a teacher."""
    embedding, hidden = shape
    return settings.replaced(
        embedding=embedding,
        hidden=hidden,
        distill=0.0,
        written=0,
        start_from="",
        phases=("control",),
    )
