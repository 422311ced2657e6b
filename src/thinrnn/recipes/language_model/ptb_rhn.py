"""The paper's recurrent highway networks on the Penn Treebank: settings by name.

Its authors train for 300 epochs by SGD, in batches of 20; here Adam takes a third of the epochs in
batches of 64. Their loss is summed over 35 steps, ours is the mean over tokens, so the strengths of
group lasso are 1/35 of what they were.
"""

import dataclasses
import functools

from thinrnn.recipes.language_model.ptb import preset
from thinrnn.recipes.language_model.settings import PHASES, Settings

WIDTH, DEPTH, WORDS = 830, 10, 10_000
PAPER_WIDTH = 389
CURVE_WIDTHS = (726, 517, 403, 328)  # those of the ISS paper, for 0.004, 0.005, 0.006, 0.007
CURVE_EPOCHS = 40
# What the pruned run ended with; the control that is trained alone has this width.
PAPER_SHAPE = 389


def parameters(width: int) -> int:
    """Return how many parameters the tied model of this width has, biases included."""
    highway = 2 * width * (width + DEPTH * width + DEPTH)
    return highway + WORDS * width + WORDS


def dense() -> Settings:
    """Variational RHN with tied weights; Adam instead of its authors' 300 epochs of SGD."""
    settings = Settings(
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
        epochs=100,
        valid_batch=64,
        target_params=None,
        phases=("dense",),
    )
    return dropping(settings, 0.8)


def dropping(settings: Settings, part: float) -> Settings:
    """Return settings that drop a part of what the authors drop, of which the paper takes 0.75."""
    return dataclasses.replace(
        settings,
        word_dropout=part * 0.25,
        input_dropout=part * 0.75,
        recurrent_dropout=part * 0.25,
        dropout=part * 0.75,
    )


def iss(strength: float = 0.005) -> Settings:
    """The paper's ISS baseline: group lasso instead of gates, otherwise as `paper`."""
    return dataclasses.replace(paper(), target_params=None, lasso=strength / 35, phases=("gated",))


def paper(width: int = PAPER_WIDTH) -> Settings:
    """Neuron selection from the paper's model down to a width, with the paper's dropout."""
    return dataclasses.replace(
        dropping(dense(), 0.75),
        target_params=parameters(width),
        target_time=0.25,
        gate_lr=0.01,
        gate_mean=2.5,
        phases=("gated", "control"),
    )


def thin() -> Settings:
    """Our own recipe at the paper's width: the dense model pruned, on text that it writes."""
    return dataclasses.replace(
        paper(),
        small_dropout=0.05,
        epochs=160,
        distill=0.9,
        written=19,
        start_from="teacher",
        phases=PHASES,
    )


def curve(width: int) -> Settings:
    """A point of the figure, of which each has fewer epochs than a row of the table."""
    return dataclasses.replace(paper(width), epochs=CURVE_EPOCHS)


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
            functools.partial(curve, width),
        )
        for k, width in enumerate(CURVE_WIDTHS, start=1)
    ),
    preset("rhn-thin", f"our own recipe: a width of {PAPER_WIDTH} that learns from models", thin),
    preset("rhn-scratch", "the width of ptb-rhn-paper from scratch", scratch),
)
