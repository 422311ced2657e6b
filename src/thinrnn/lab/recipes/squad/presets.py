"""The paper's readers and ours: settings by name.

A target counts all parameters, of which the second biases of torch's LSTMs are not counted by the
paper; the tables of characters and of words outside GloVe are counted by both.
"""

from thinrnn.lab.recipes.named_settings import Preset
from thinrnn.lab.recipes.squad.settings import SquadSettings

PAPER_BUDGET = 960_000
PAPER_SIX = (26, 33, 36, 36, 33, 15)


def dense() -> SquadSettings:
    """The vanilla row: Adam, as in the code that the paper's baseline comes from."""
    return SquadSettings(phases=("dense",))


def dense_adadelta() -> SquadSettings:
    """The same as in the first code of BiDAF."""
    return dense().replaced(optimizer="adadelta", lr=0.5, steps=20_000)


def iss() -> SquadSettings:
    """The ISS row: group lasso instead of gates, with the settings of its authors."""
    return SquadSettings(
        phases=("gated",),
        target_params=None,
        lasso=1e-3,
        lasso_zero=4e-4,
        lasso_zero_at_end=0.02,
        small_dropout=0.1,
    )


def paper() -> SquadSettings:
    """Neuron selection in the paper's size, and the same shape from scratch."""
    return SquadSettings(phases=("gated", "control"), target_params=PAPER_BUDGET, small_dropout=0.1)


def fast() -> SquadSettings:
    """Ours: also the encoder pruned, for speed."""
    return SquadSettings(
        select="recurrent", phases=("gated", "control"), target_params=700_000, small_dropout=0.1
    )


def scratch() -> SquadSettings:
    """The paper's sizes from scratch."""
    return SquadSettings(phases=("dense",), six=PAPER_SIX, dropout=0.1)


def thin() -> SquadSettings:
    """Ours: as good as the dense one with less than half of its weights."""
    return SquadSettings(
        phases=("gated", "control"),
        target_params=1_200_000,
        steps=12_000,
        small_dropout=0.15,
    )


PRESETS = (
    Preset(
        "squad-dense",
        "squad",
        "BiDAF on SQuAD, the paper's vanilla row",
        dense,
        "EM 67.88, F1 77.42, 2.66M weights",
    ),
    Preset("squad-dense-adadelta", "squad", "the same by Adadelta, twice as long", dense_adadelta),
    Preset(
        "squad-iss",
        "squad",
        "BiDAF pruned by group lasso, for comparison",
        iss,
        "EM 61.33, F1 72.59, 1.13M weights, with lasso=0.0003, lasso_zero=0.01, "
        "lasso_zero_at_end=0.0",
    ),
    Preset(
        "squad-paper",
        "squad",
        "BiDAF, neuron selection at the paper's size",
        paper,
        "EM 67.93, F1 77.33, 0.96M weights",
    ),
    Preset(
        "squad-scratch",
        "squad",
        "BiDAF with the paper's sizes from scratch",
        scratch,
        "EM 66.05, F1 76.27, 0.92M weights",
    ),
    Preset(
        "squad-fast",
        "squad",
        "BiDAF, the encoder pruned too, for speed",
        fast,
        "EM 65.62, F1 75.86, 0.70M weights",
    ),
    Preset(
        "squad-thin",
        "squad",
        "BiDAF, our best recipe",
        thin,
        "EM 67.71, F1 77.36, 1.20M weights",
    ),
)
