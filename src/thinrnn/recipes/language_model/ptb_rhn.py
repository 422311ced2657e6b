"""The paper's recurrent highway networks on the Penn Treebank: settings by name.

The reference trains on a loss that is summed over 35 steps; here it is the mean over tokens, so its
rate is 35 times as large, and its clipping, decay and group lasso are 1/35 of what they were.
"""

import dataclasses
import functools

from thinrnn.recipes.language_model.ptb import preset
from thinrnn.recipes.language_model.settings import Settings

WIDTH, DEPTH, WORDS = 830, 10, 10_000
PAPER_WIDTH = 389
CURVE_WIDTHS = (726, 517, 403, 328)  # those of the ISS paper, for 0.004, 0.005, 0.006, 0.007
# What the pruned run ended with; the control that is trained alone has this width.
PAPER_SHAPE = 389


def parameters(width: int) -> int:
    """Return how many parameters the tied model of this width has, biases included."""
    highway = 2 * width * (width + DEPTH * width + DEPTH)
    return highway + WORDS * width + WORDS


def dense() -> Settings:
    """Variational RHN with tied weights, as its authors train it."""
    return Settings(
        cell="rhn",
        depth=DEPTH,
        embedding=WIDTH,
        hidden=(WIDTH,),
        tied=True,
        locked=True,
        word_dropout=0.25,
        input_dropout=0.75,
        recurrent_dropout=0.25,
        dropout=0.75,
        init_range=0.04,
        rnn_init=0.04,
        optimizer="sgd",
        lr=7.0,
        clip=10 / 35,
        weight_decay=1e-7 / 35,
        schedule="decay",
        lr_decay=1 / 1.02,
        decay_from=20,
        epochs=300,
        eval_batch=20,
        target_params=None,
        phases=("dense",),
    )


def iss(strength: float = 0.005) -> Settings:
    """The paper's ISS baseline: group lasso instead of gates, otherwise as `paper`."""
    return dataclasses.replace(paper(), target_params=None, lasso=strength / 35, phases=("gated",))


def paper(width: int = PAPER_WIDTH) -> Settings:
    """Neuron selection from the paper's model down to a width, with the paper's changes."""
    large = dense()
    return dataclasses.replace(
        large,
        word_dropout=0.75 * large.word_dropout,
        input_dropout=0.75 * 0.75,
        recurrent_dropout=0.75 * large.recurrent_dropout,
        dropout=0.75 * large.dropout,
        init_range=0.08,
        rnn_init=0.08,
        decay_from=35,
        target_params=parameters(width),
        target_time=0.1,
        gate_lr=0.005,
        gate_mean=2.5,
        phases=("gated", "control"),
    )


def scratch() -> Settings:
    """The width that `paper` ends with, trained alone from scratch under the same schedule."""
    return dataclasses.replace(
        paper(), embedding=PAPER_SHAPE, hidden=(PAPER_SHAPE,), phases=("control",)
    )


PRESETS = (
    preset("rhn-dense", "the paper's dense recurrent highway network", dense),
    preset("rhn-iss", "group lasso on the same model (ISS)", iss),
    preset(
        "rhn-paper", f"neuron selection down to a width of {PAPER_WIDTH}, and its control", paper
    ),
    *(
        preset(
            f"rhn-curve-{k}",
            f"neuron selection down to a width of {width}, and its control",
            functools.partial(paper, width),
        )
        for k, width in enumerate(CURVE_WIDTHS, start=1)
    ),
    preset("rhn-scratch", "the width of ptb-rhn-paper from scratch", scratch),
)
