"""The paper's recurrent highway networks on the Penn Treebank: settings by name.

Its authors train by SGD, in batches of 20, for up to 500 epochs; here Adam takes 40 to 160, in
batches of 64.
"""

import functools

from thinrnn.lab.recipes.language_model.ptb import from_scratch, taught
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.named_settings import Presets

WIDTH, DEPTH, WORDS = 830, 10, 10_000
PAPER_WIDTH = 389
# The widths of the ISS paper, for 0.004, 0.005, 0.006, 0.007, and what ours reached there.
CURVE = {
    726: "66.55 / 64.14, 18.86M weights",
    517: "67.42 / 65.04, 11.05M weights",
    403: "68.83 / 66.65, 7.60M weights",
    328: "70.47 / 68.24, 5.65M weights",
}
CURVE_EPOCHS = 40
# What the pruned run ended with; the control that is trained alone has this width.
PAPER_SHAPE = 389, (389,)

PRESETS = Presets("language_model", prefix="ptb-rhn-", corpus="ptb")


def parameters(width: int) -> int:
    """Return how many parameters the tied model of this width has, biases included."""
    highway = 2 * width * (width + DEPTH * width + DEPTH)
    return highway + WORDS * width + WORDS


@PRESETS.add("dense", "the paper's dense recurrent highway network", "66.99 / 64.88, 23.5M weights")
def dense() -> LanguageModelSettings:
    """Variational RHN with tied weights; Adam instead of its authors' SGD."""
    settings = LanguageModelSettings(
        cell="rhn",
        depth=DEPTH,
        embedding=WIDTH,
        hidden=(WIDTH,),
        tied=True,
        locked=True,
        init_range=0.04,
        rnn_init=0.04,
        optimizer="adam",
        lr=1.5e-3,
        clip=0.25,
        weight_decay=1.2e-6,
        schedule="cosine",
        warmup=1000,
        batch=64,
        epochs=120,
        valid_batch=64,
        target_params=None,
        phases=("dense",),
    )
    return dropping(settings, 1.0)


def dropping(settings: LanguageModelSettings, part: float) -> LanguageModelSettings:
    """Return settings with a part of the authors' dropout; the paper takes 0.75 of it."""
    return settings.replaced(
        word_dropout=part * 0.25,
        input_dropout=part * 0.75,
        recurrent_dropout=part * 0.25,
        dropout=part * 0.75,
    )


@PRESETS.add(
    "iss", "group lasso on the same model (ISS)", "84.46 / 81.80, 12.46M weights, given 2 teachers"
)
def iss(strength: float = 2e-4) -> LanguageModelSettings:
    """The ISS baseline: a point of the figure with group lasso instead of gates.

    By SGD, as its authors train it: under Adam, which scales what the penalty adds to a gradient,
    all neurons get smaller together and none goes. A penalty and much dropout are too much.
    """
    return curve(PAPER_WIDTH).replaced(
        word_dropout=0.025,
        input_dropout=0.075,
        recurrent_dropout=0.025,
        dropout=0.075,
        small_dropout=None,
        optimizer="sgd",
        lr=20.0,
        target_params=None,
        lasso=strength,
        phases=("dense", "gated"),
    )


for which, strength, reached in (
    ("weak", 1.2e-4, "74.49 / 72.14, 23.5M weights"),
    ("strong", 2.8e-4, "92.60 / 89.61, 5.19M weights"),
):
    PRESETS.add(
        f"iss-{which}", f"the same with a {which}er penalty", f"{reached}, given 2 teachers"
    )(functools.partial(iss, strength))


@PRESETS.add("iss-authors", "group lasso with the settings of its authors, without teachers")
def iss_authors() -> LanguageModelSettings:
    """SGD, small batches, many epochs."""
    return dropping(dense(), 0.6).replaced(
        optimizer="sgd",
        lr=7.0,
        clip=10 / 35,
        weight_decay=2.86e-9,
        schedule="decay",
        lr_decay=1 / 1.02,
        decay_from=20,
        warmup=0,
        batch=20,
        epochs=400,
        lasso=1.43e-4,
        lasso_zero=4e-4,
        phases=("gated",),
    )


@PRESETS.add(
    "paper",
    f"our best recipe for a width of {PAPER_WIDTH}, and its control",
    "67.18 / 64.98, 7.22M weights, given 2 teachers",
)
def paper(width: int = PAPER_WIDTH) -> LanguageModelSettings:
    """Neuron selection in the dense model, down to a width, on text that models write."""
    return taught(plain(width), small_dropout=0.05)


@PRESETS.add(
    "plain",
    f"neuron selection down to a width of {PAPER_WIDTH} without other models",
    "69.48 / 66.65, 7.22M weights, with epochs=100",
)
def plain(width: int = PAPER_WIDTH) -> LanguageModelSettings:
    """Neuron selection as in the paper: from scratch, on the training text, with its dropout."""
    return dropping(dense(), 0.75).replaced(
        epochs=300,
        target_params=parameters(width),
        target_time=0.25,
        gate_lr=0.01,
        gate_mean=2.5,
        phases=("gated",),
    )


@PRESETS.add(
    "scratch",
    "the width of ptb-rhn-plain from scratch",
    "70.33 / 67.85, 7.22M weights, with epochs=100",
)
def scratch() -> LanguageModelSettings:
    """Trained alone, under the schedule of `plain`."""
    return from_scratch(plain(), PAPER_SHAPE)


def curve(width: int) -> LanguageModelSettings:
    """A point of the figure: as `paper`, to another width and with fewer epochs."""
    return paper(width).replaced(epochs=CURVE_EPOCHS, written=9)


for k, (width, reached) in enumerate(CURVE.items(), start=1):
    summary = f"the recipe of ptb-rhn-paper for a width of {width}, and its control"
    PRESETS.add(f"curve-{k}", summary, f"{reached}, given 2 teachers")(
        functools.partial(curve, width)
    )
